"""Dot-product attention over padded tokens.

Shapes: B sentences, Q queries, T tokens, D width, N alternatives.
"""

from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(
    scores: Float[Tensor, "*batch N"], mask: Bool[Tensor, "*batch N"]
) -> Float[Tensor, "*batch N"]:
    """Return the softmax over unmasked elements; all zeros if there are none."""
    return mask_scores(scores, mask).softmax(dim=-1) * mask


def mask_scores(
    scores: Float[Tensor, "*batch N"], mask: Bool[Tensor, "*batch N"]
) -> Float[Tensor, "*batch N"]:
    """Replace the scores of masked elements by a very low number."""
    # Not -inf: a row that is masked completely would be nan, and so would its gradient.
    return scores.masked_fill(~mask, -1e4 if scores.element_size() == 2 else -1e30)


def attend(
    queries: Float[Tensor, "B Q D"], tokens: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B Q D"]:
    """Return for each query the average of the tokens, weighted by softmax of dot products."""
    scores = queries @ tokens.transpose(1, 2)  # (B, Q, T)
    return masked_softmax(scores, mask[:, None].expand_as(scores)) @ tokens
