"""Attention over tokens, some of which are not there.

Shapes: B sentences, Q tokens that look, T tokens that are looked at, D width, N alternatives.
"""

from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(
    scores: Float[Tensor, "*batch N"], mask: Bool[Tensor, "*batch N"]
) -> Float[Tensor, "*batch N"]:
    """Give shares of what is there; all are zero where nothing is."""
    return lowered(scores, mask).softmax(dim=-1) * mask


def lowered(
    scores: Float[Tensor, "*batch N"], mask: Bool[Tensor, "*batch N"]
) -> Float[Tensor, "*batch N"]:
    """Put the scores of what is not there below all others."""
    # Not -inf: a row without anything would be nan, and so would its gradient.
    return scores.masked_fill(~mask, -1e4 if scores.element_size() == 2 else -1e30)


def attend(
    queries: Float[Tensor, "B Q D"], tokens: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B Q D"]:
    """Give each query the average of the tokens there, by how alike they are (dot product)."""
    scores = queries @ tokens.transpose(1, 2)  # (B, Q, T)
    return masked_softmax(scores, mask[:, None].expand_as(scores)) @ tokens
