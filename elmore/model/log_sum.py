"""The log of a sum over many words, without the logits of all positions and words at once.

    total[m] = log sum_j exp(states[m] . rows[j] + offsets[j])        j: all words but the own

What is kept is one number per position; backward computes the logits again, tile by tile.

Shapes: M positions, D width, n words summed over.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmore.model import softmax_kernels

_EVEN = 64  # words: a GPU multiplies matrices of other widths at a fraction of the speed


def log_sum_others(
    states: Float[Tensor, "M D"],
    rows: Float[Tensor, "n D"],
    offsets: Float[Tensor, " n"],
    words: Int[Tensor, " n"],
    targets: Int[Tensor, " M"],
    *,
    chunk: int,
) -> Float[Tensor, " M"]:
    """Give log sum_j exp(states . rows[j] + offsets[j]) over the words that are not the target.

    Where every word is the target the sum is empty and its log is -inf. Under autocast the matrix
    products are in its precision and everything else in float32.
    """
    dtype = torch.promote_types(states.dtype, rows.dtype)
    device = states.device.type
    if dtype == torch.float32 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):  # from here on every precision is chosen by name
        return _LogSumOthers.apply(states, rows, offsets, words, targets.contiguous(), dtype, chunk)


class _LogSumOthers(torch.autograd.Function):
    """The words are the outer loop, so that a row is read, and its gradient finished, once."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch keeps here what it is given
        states: Float[Tensor, "M D"],
        rows: Float[Tensor, "n D"],
        offsets: Float[Tensor, " n"],
        words: Int[Tensor, " n"],
        targets: Int[Tensor, " M"],
        dtype: torch.dtype,
        chunk: int,
    ) -> Float[Tensor, " M"]:
        ctx.num_words = len(rows)
        if states.is_cuda:
            rows, offsets, words = _evened(rows, offsets, words)
        positions, columns = ctx.tiles = _tiles(len(states), len(rows), chunk)
        low = states.to(dtype)
        sums = []
        for column in columns:
            few, offset, word = rows[column].to(dtype), offsets[column], words[column]
            parts = [
                softmax_kernels.log_sum(_product(low[at], few.T), offset, word, targets[at])
                for at in positions
            ]
            sums.append(torch.cat(parts))
        total = torch.stack(sums).logsumexp(dim=0)
        ctx.save_for_backward(states, rows, offsets, words, targets, total)
        ctx.dtype = dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(  # pyrefly: ignore[bad-override] -- the decorator hides the names
        ctx: Any,  # noqa: ANN401
        *grads: Float[Tensor, " M"],
    ) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        states, rows, offsets, words, targets, total = ctx.saved_tensors
        dtype, (positions, columns) = ctx.dtype, ctx.tiles
        total = total.masked_fill(total == -math.inf, 0)  # an empty sum has no shares
        low = states.to(dtype)
        pushed = (states * grad[:, None]).to(dtype)  # (M, D): less work than on the shares
        pushing = grad[:, None].to(dtype)
        to_states, to_rows, to_offsets = (
            torch.zeros_like(x, dtype=total.dtype) if needed else None
            for x, needed in zip((states, rows, offsets), ctx.needs_input_grad, strict=False)
        )
        for column in columns:
            few, offset, word = rows[column].to(dtype), offsets[column], words[column]
            for at in positions:
                shares = softmax_kernels.shares(
                    _product(low[at], few.T), offset, word, targets[at], total[at], dtype
                )
                if to_states is not None:
                    to_states[at] += _product(shares, few)
                if to_rows is not None:
                    to_rows[column] += _product(shares.T, pushed[at])
                if to_offsets is not None:
                    to_offsets[column] += _product(shares.T, pushing[at]).squeeze(1)
        if to_states is not None:
            to_states = to_states.mul_(grad[:, None]).to(states.dtype)
        if to_rows is not None:
            to_rows = to_rows[: ctx.num_words]
        if to_offsets is not None:
            to_offsets = to_offsets[: ctx.num_words]
        return to_states, to_rows, to_offsets, None, None, None, None


def _evened(
    rows: Float[Tensor, "n D"], offsets: Float[Tensor, " n"], words: Int[Tensor, " n"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Add words that never come, up to an even number."""
    missing = -len(rows) % _EVEN
    if not missing:
        return rows, offsets, words
    return (
        functional.pad(rows, (0, 0, 0, missing)),
        functional.pad(offsets, (0, missing), value=-math.inf),
        functional.pad(words, (0, missing), value=-1),
    )


def _product(left: Float[Tensor, "m k"], right: Float[Tensor, "k l"]) -> Float[Tensor, "m l"]:
    """Multiply in the precision of the factors; the result is in float32 at least."""
    wide = torch.promote_types(left.dtype, torch.float32)
    if wide != left.dtype and left.is_cuda:
        return torch.mm(left, right, out_dtype=wide)  # the sums are never rounded
    return (left @ right).to(wide)


def _tiles(num_positions: int, num_words: int, chunk: int) -> tuple[list[slice], list[slice]]:
    """Cut both sides into tiles of `chunk` logits at most, as square as they can be."""
    height = max(1, min(num_positions, math.isqrt(chunk)))
    width = min(num_words, chunk // height)
    width -= width % _EVEN if width > _EVEN and width < num_words else 0
    height = max(1, min(num_positions, chunk // width))
    return _cut(num_positions, height), _cut(num_words, width)


def _cut(size: int, step: int) -> list[slice]:
    return [slice(begin, begin + step) for begin in range(0, max(1, size), step)]
