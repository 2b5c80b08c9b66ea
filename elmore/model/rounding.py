"""Rows of a matrix in 2 or 4 bits a number, with a scale for each row.

    weight[r, c] = number[r, c] * scale[r]        odd numbers from 1 - 2^bits to 2^bits - 1

So the numbers of 2 bits are -3, -1, 1 and 3. There is no zero, because an even number of levels
lies symmetrically without one. Rounding is idempotent: of rounded rows the scale is found again, by
their largest or their smallest number.

Quantization-aware training computes with the rounded weights, and passes the gradient on to the
weights as if they were not rounded (straight-through estimator, Bengio et al., 2013).

Shapes: R rows, C wide.
"""

import torch
from jaxtyping import Float
from torch import Tensor

# The step between two levels, in standard deviations, that a normal distribution loses least by.
_STEP = {2: 0.9957, 4: 0.3352}


def round_rows(
    rows: Float[Tensor, "R C"], bits: int
) -> tuple[Float[Tensor, "R C"], Float[Tensor, "R 1"]]:
    """Return the odd numbers that rows are rounded to, and their scales, as float16 holds them.

    Of three scales, each row has the one that changes it least.
    """
    sizes = rows.abs()
    scales = (
        rows.square().mean(dim=1, keepdim=True).sqrt() * (_STEP[bits] / 2),
        sizes.amax(dim=1, keepdim=True) / (2**bits - 1),  # exact for rounded rows with their
        sizes.amin(dim=1, keepdim=True),  # largest number, and for those with their smallest
    )
    numbers, scale, loss = _round(rows, scales[0], bits)
    for other in scales[1:]:
        tried, other_scale, other_loss = _round(rows, other, bits)
        better = other_loss < loss
        numbers, scale = (
            torch.where(better, tried, numbers),
            torch.where(better, other_scale, scale),
        )
        loss = torch.where(better, other_loss, loss)
    return numbers, scale


def round_straight_through(rows: Float[Tensor, "R C"], bits: int) -> Float[Tensor, "R C"]:
    """Return rounded rows, the gradient of which is that of the rows."""
    with torch.no_grad():
        numbers, scale = round_rows(rows.detach(), bits)
        rounded = numbers * scale
    return rounded + (rows - rows.detach())  # plus zero, which has the gradient


def _round(
    rows: Float[Tensor, "R C"], scale: Float[Tensor, "R 1"], bits: int
) -> tuple[Float[Tensor, "R C"], Float[Tensor, "R 1"], Float[Tensor, "R 1"]]:
    """Return the numbers of a scale, the scale as it is stored, and the squared error."""
    scale = scale.to(torch.float16).clamp(min=2**-24).to(rows.dtype)
    largest = 2**bits - 1
    numbers = (2 * ((rows / scale - 1) / 2).round() + 1).clamp(-largest, largest)
    return numbers, scale, (numbers * scale - rows).square().sum(dim=1, keepdim=True)
