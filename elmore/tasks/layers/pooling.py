"""Pool the tokens of a sentence into one vector; zero for an empty sentence.

Shapes: B sentences, T tokens, D width.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_max(x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """Return the maximum over unmasked tokens."""
    if not x.shape[1]:  # torch cannot take the maximum of nothing
        return x.new_zeros(x.shape[0], x.shape[2])
    largest = x.masked_fill(~mask[:, :, None], torch.finfo(x.dtype).min).amax(dim=1)
    return largest * mask.any(dim=1)[:, None]


def masked_mean(x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """Return the mean over unmasked tokens."""
    total = x.masked_fill(~mask[:, :, None], 0.0).sum(dim=1)
    return total / mask.sum(dim=1).clamp(min=1)[:, None]
