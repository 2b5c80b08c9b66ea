"""Rows of a matrix in 2 or 4 bits a number, with a scale for each row.

    weight[r, c] = number[r, c] * scale[r]        odd numbers from 1 - 2^bits to 2^bits - 1

So the numbers of 2 bits are -3, -1, 1 and 3. There is no zero, because an even number of levels
lies symmetrically without one. Rounding is idempotent: the scale of a rounded row is found again,
because its largest number is one of those odd numbers.

Quantization-aware training computes with the rounded weights, and passes the gradient on to the
weights as if they were not rounded (straight-through estimator, Bengio et al., 2013).

Shapes: R rows, C wide.
"""

import torch
from jaxtyping import Float
from torch import Tensor

# The step between two levels, in standard deviations, that a normal distribution loses least by.
_STEP = {2: 0.9957, 4: 0.3352}
_BLOCK = 2**17  # numbers rounded at a time on a CPU, which stay in its cache


def round_rows(
    rows: Float[Tensor, "R C"], bits: int
) -> tuple[Float[Tensor, "R C"], Float[Tensor, "R 1"]]:
    """Return the odd numbers that rows are rounded to, and their scales, as float16 holds them.

    Of the scales that are tried, each row has the one that changes it least.
    """
    if rows.device.type != "cpu" or rows.numel() <= _BLOCK:
        return _round_block(rows, bits)
    blocks = rows.split(max(1, _BLOCK // rows.shape[1]))
    numbers, scales = zip(*(_round_block(block, bits) for block in blocks), strict=True)
    return torch.cat(numbers), torch.cat(scales)


def round_straight_through(rows: Float[Tensor, "R C"], bits: int) -> Float[Tensor, "R C"]:
    """Return rounded rows, the gradient of which is that of the rows."""
    with torch.no_grad():
        numbers, scale = round_rows(rows.detach(), bits)
        rounded = numbers * scale
    return rounded + (rows - rows.detach())  # plus zero, which has the gradient


def _round_block(
    rows: Float[Tensor, "R C"], bits: int
) -> tuple[Float[Tensor, "R C"], Float[Tensor, "R 1"]]:
    largest = rows.abs().amax(dim=1, keepdim=True)
    normal = rows.square().mean(dim=1, keepdim=True).sqrt() * (_STEP[bits] / 2)
    best = _round(rows, normal, bits)
    for odd in range(2**bits - 1, 0, -2):
        tried = _round(rows, largest / odd, bits)
        better = tried[-1] < best[-1]
        best = tuple(torch.where(better, *pair) for pair in zip(tried, best, strict=True))
    numbers, scale, _ = best
    return numbers, scale


def _round(
    rows: Float[Tensor, "R C"], scale: Float[Tensor, "R 1"], bits: int
) -> tuple[Float[Tensor, "R C"], Float[Tensor, "R 1"], Float[Tensor, "R 1"]]:
    """Return the numbers of a scale, the scale as it is stored, and the squared error."""
    scale = scale.to(torch.float16).clamp(min=2**-24).to(rows.dtype)
    largest = 2**bits - 1
    numbers = (2 * ((rows / scale - 1) / 2).round() + 1).clamp(-largest, largest)
    return numbers, scale, (numbers * scale - rows).square().sum(dim=1, keepdim=True)
