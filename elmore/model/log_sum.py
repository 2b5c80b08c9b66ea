"""Log-sum-exp over many words, without the logits of all positions and words at once.

    total[m] = log sum_j exp(states[m] . rows[j] + offsets[j])        j: all words but the target

One number per position is saved; backward recomputes the logits, tile by tile.

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

_CPU_CHUNK = 2**21  # logits: tiles of 8 MB mostly stay in the cache between the passes over them
_MULTIPLE = 64  # words: a GPU multiplies matrices of other widths at a fraction of the speed


def log_sum_others(
    states: Float[Tensor, "M D"],
    rows: Float[Tensor, "n D"],
    offsets: Float[Tensor, " n"],
    words: Int[Tensor, " n"],
    targets: Int[Tensor, " M"],
    *,
    chunk: int,
) -> Float[Tensor, " M"]:
    """Return log sum_j exp(states . rows[j] + offsets[j]) over the words that are not the target.

    Where every word is the target the sum is empty and its log is -inf. Under autocast the matrix
    products are in its precision and everything else in float32.
    """
    device = states.device.type
    dtype, chunk = product_dtype(states, rows), tile_size(device, chunk)
    with torch.autocast(device, enabled=False):  # from here on every type is explicit
        return _LogSumOthers.apply(states, rows, offsets, words, targets.contiguous(), dtype, chunk)


def product_dtype(states: Float[Tensor, "M D"], rows: Float[Tensor, "n D"]) -> torch.dtype:
    """Return the precision of their products: under autocast its own, else theirs."""
    dtype, device = torch.promote_types(states.dtype, rows.dtype), states.device.type
    is_low = dtype == torch.float32 and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if is_low else dtype


def tile_size(device: str, chunk: int) -> int:
    """Return how many logits a tile has at most."""
    return min(chunk, _CPU_CHUNK) if device == "cpu" else chunk


class _LogSumOthers(torch.autograd.Function):
    """The outer loop is over words, so that each row is read and its gradient summed once."""

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
            rows, offsets, words = pad_words(rows, offsets, words)
        positions, columns = ctx.tiles = cut_tiles(len(states), len(rows), chunk)
        low = states.to(dtype)
        sums = []
        for column in columns:
            few, offset, word = rows[column].to(dtype), offsets[column], words[column]
            parts = [
                softmax_kernels.log_sum(multiply(low[at], few.T), offset, word, targets[at])
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
        total = total.masked_fill(total == -math.inf, 0)  # an empty sum has no gradient
        low = states.to(dtype)
        # The incoming gradient scales states (M, D): less work than scaling probabilities (M, n).
        scaled_states = (states * grad[:, None]).to(dtype)
        scale = grad[:, None].to(dtype)
        states_grad, rows_grad, offsets_grad = (
            torch.zeros_like(x, dtype=total.dtype) if needed else None
            for x, needed in zip((states, rows, offsets), ctx.needs_input_grad, strict=False)
        )
        for column in columns:
            few, offset, word = rows[column].to(dtype), offsets[column], words[column]
            for at in positions:
                probs = softmax_kernels.probabilities(
                    multiply(low[at], few.T), offset, word, targets[at], total[at], dtype
                )
                if states_grad is not None:
                    states_grad[at] += multiply(probs, few)
                if rows_grad is not None:
                    rows_grad[column] += multiply(probs.T, scaled_states[at])
                if offsets_grad is not None:
                    offsets_grad[column] += multiply(probs.T, scale[at]).squeeze(1)
        if states_grad is not None:
            states_grad = states_grad.mul_(grad[:, None]).to(states.dtype)
        if rows_grad is not None:
            rows_grad = rows_grad[: ctx.num_words]
        if offsets_grad is not None:
            offsets_grad = offsets_grad[: ctx.num_words]
        return states_grad, rows_grad, offsets_grad, None, None, None, None


def pad_words(
    rows: Float[Tensor, "n D"], offsets: Float[Tensor, " n"], words: Int[Tensor, " n"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Pad to a multiple of `_MULTIPLE` with words of probability zero."""
    missing = -len(rows) % _MULTIPLE
    if not missing:
        return rows, offsets, words
    return (
        functional.pad(rows, (0, 0, 0, missing)),
        functional.pad(offsets, (0, missing), value=-math.inf),
        functional.pad(words, (0, missing), value=-1),
    )


def multiply(left: Float[Tensor, "m k"], right: Float[Tensor, "k l"]) -> Float[Tensor, "m l"]:
    """Multiply in the precision of the factors; the result is in float32 at least."""
    wide = torch.promote_types(left.dtype, torch.float32)
    if wide != left.dtype and left.is_cuda:
        return torch.mm(left, right, out_dtype=wide)  # sums stay in float32
    return (left @ right).to(wide)


def cut_tiles(num_positions: int, num_words: int, chunk: int) -> tuple[list[slice], list[slice]]:
    """Split positions and words into tiles of at most `chunk` logits, as square as possible."""
    height = max(1, min(num_positions, math.isqrt(chunk)))
    width = min(num_words, chunk // height)
    width -= width % _MULTIPLE if width > _MULTIPLE and width < num_words else 0
    height = max(1, min(num_positions, chunk // width))
    return _cut(num_positions, height), _cut(num_words, width)


def _cut(size: int, step: int) -> list[slice]:
    return [slice(begin, begin + step) for begin in range(0, max(1, size), step)]
