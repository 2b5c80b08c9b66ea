"""Soft targets: the predictions q of a teacher in the place of the one word that follows.

    cross-entropy to q - nll of the target = sum_j q[m, j] (own[m] - logits[m, j])

over the candidates j that are not the target; `own` is the logit of the target. Both models give
logits to the same candidates, and q is the softmax of those of the teacher, which has no gradient.
As in `log_sum.py`, logits are made tile by tile, forward and backward, and a GPU fuses what follows
each product.

Shapes: M positions, D width of the model, E width of the teacher, n candidates.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmore.model import softmax_kernels
from elmore.model.log_sum import cut_tiles, multiply, pad_words, product_dtype, tile_size
from elmore.model.softmax import LogitParts


class _Teacher(NamedTuple):
    """What q is made of: exp(states . rows + offsets - total)."""

    states: Float[Tensor, "M E"]
    rows: Float[Tensor, "n E"]
    offsets: Float[Tensor, " n"]
    total: Float[Tensor, " M"]


def soft_target_excess(
    model: LogitParts, teacher: LogitParts, *, chunk: int
) -> Float[Tensor, " M"]:
    """Return by how much the cross-entropy to the teacher's predictions exceeds the nll.

    It is below 0 where the model finds the words of the teacher likelier than the target.

    Args:
        model: Its logits.
        teacher: Those of the teacher, of the same targets and candidates.
        chunk: Logits computed at a time.
    """
    with torch.no_grad():
        total = torch.logaddexp(teacher.log_sum_others(chunk), teacher.own)
        others = 1 - (teacher.own - total).exp()  # what q leaves to the candidates
    parts = _Teacher(
        teacher.states.detach(), teacher.rows.detach(), teacher.offsets.detach(), total
    )
    dtype, device = product_dtype(model.states, model.rows), model.states.device.type
    with torch.autocast(device, enabled=False):  # from here on every type is explicit
        expected = _ExpectedLogits.apply(
            model.states, model.rows, model.offsets, model.words, model.targets.contiguous(),
            parts, dtype, tile_size(device, chunk),
        )  # fmt: skip
    return model.own * others - expected


class _ExpectedLogits(torch.autograd.Function):
    """The sum of q times the logits; q is computed anew in the backward pass, instead of stored."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch keeps here what it is given
        states: Float[Tensor, "M D"],
        rows: Float[Tensor, "n D"],
        offsets: Float[Tensor, " n"],
        words: Int[Tensor, " n"],
        targets: Int[Tensor, " M"],
        teacher: _Teacher,
        dtype: torch.dtype,
        chunk: int,
    ) -> Float[Tensor, " M"]:
        ctx.num_words = len(rows)
        if states.is_cuda:
            padded_rows, padded_offsets, words = pad_words(teacher.rows, teacher.offsets, words)
            teacher = teacher._replace(rows=padded_rows, offsets=padded_offsets)
            missing = len(words) - len(rows)  # their q is 0, so their logits must be finite
            rows = functional.pad(rows, (0, 0, 0, missing))
            offsets = functional.pad(offsets, (0, missing))
        ctx.tiles, ctx.dtype = cut_tiles(len(states), len(rows), chunk), dtype
        wide = torch.promote_types(dtype, torch.float32)
        mean_row = torch.zeros_like(states, dtype=wide)
        mean_offset = torch.zeros_like(states[:, 0], dtype=wide)
        for column, at, q in _predictions(ctx.tiles, words, targets, teacher, dtype):
            mean_row[at] += multiply(q, rows[column].to(dtype))
            mean_offset[at] += multiply(q, offsets[column, None].to(dtype)).squeeze(1)
        ctx.save_for_backward(states, mean_row, words, targets, *teacher)
        return (states * mean_row).sum(dim=1) + mean_offset

    @staticmethod
    @once_differentiable
    def backward(  # pyrefly: ignore[bad-override] -- the decorator hides the names
        ctx: Any,  # noqa: ANN401
        *grads: Float[Tensor, " M"],
    ) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        states, mean_row, words, targets, *parts = ctx.saved_tensors
        teacher, dtype = _Teacher(*parts), ctx.dtype
        scaled_states, scale = (states * grad[:, None]).to(dtype), grad[:, None].to(dtype)
        rows_grad = mean_row.new_zeros(len(words), states.shape[1])
        offsets_grad = mean_row.new_zeros(len(words))
        for column, at, q in _predictions(ctx.tiles, words, targets, teacher, dtype):
            rows_grad[column] += multiply(q.T, scaled_states[at])
            offsets_grad[column] += multiply(q.T, scale[at]).squeeze(1)
        states_grad = (mean_row * grad[:, None]).to(states.dtype)
        rows_grad, offsets_grad = rows_grad[: ctx.num_words], offsets_grad[: ctx.num_words]
        return states_grad, rows_grad, offsets_grad, None, None, None, None, None


def _predictions(
    tiles: tuple[list[slice], list[slice]],
    words: Int[Tensor, " n"],
    targets: Int[Tensor, " M"],
    teacher: _Teacher,
    dtype: torch.dtype,
) -> Iterator[tuple[slice, slice, Float[Tensor, "m k"]]]:
    """Yield words, positions and q of each tile."""
    low = teacher.states.to(dtype)
    positions, columns = tiles
    for column in columns:
        few, offsets = teacher.rows[column].to(dtype), teacher.offsets[column]
        for at in positions:
            q = softmax_kernels.probabilities(
                multiply(low[at], few.T),
                offsets,
                words[column],
                targets[at],
                teacher.total[at],
                dtype,
            )
            yield column, at, q
