"""Attention over tokens, some of which are not there."""

from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(
    scores: Float[Tensor, "*batch N"], mask: Bool[Tensor, "*batch N"]
) -> Float[Tensor, "*batch N"]:
    """Give shares of what is there; all are zero where nothing is."""
    # Not -inf: a row without anything would be nan, and so would its gradient.
    lowest = scores.masked_fill(~mask, -1e4 if scores.element_size() == 2 else -1e30)
    return lowest.softmax(dim=-1) * mask
