"""The projected LSTM for few rows on a CPU, in C: what is read for one sentence, or for a few.

A weight is read from memory once for all rows of a step, and all steps are taken in one call.

Shapes: B sentences, T tokens, S steps, I input width, D output width, H cell width, G = 4H gates;
I = G where inputs are driven.
"""

import ctypes
import math
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from elmore import compiled
from elmore.model.lstm import eager, steps
from elmore.model.lstm.reference import LSTMState, LSTMWeights, StateReset, bias_with_forget
from elmore.model.lstm.vectors import threads, wide

SOURCE = Path(__file__).parent / "native" / "few_rows.c"
MOST_ROWS = 8  # from there on a library's product is as quick
_WIDEST = 1024  # DEEP in the C
_MANY = 64  # rows of which a narrow product still is quicker here than by a library


def can_run(
    inputs: Float[Tensor, "B T I"],
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    weights: LSTMWeights,
) -> bool:
    """Tell whether these are few rows, and such as C can read."""
    given = [weight for weight in weights if weight is not None]
    matrices = [m for m in (weights.recurrent, weights.projection) if m is not None]
    return (
        1 <= len(inputs) <= MOST_ROWS
        and state.output.shape[1] <= _WIDEST
        and all(weight.numel() for weight in given)  # a sum of nothing is left unwritten there
        and all(matrix.is_contiguous() for matrix in matrices)
        and steps.is_readable_by_c(inputs, mask, state)
        and steps.is_cpu_float32(*given)
        and _library() is not None
    )


@torch.no_grad()
def run(
    inputs: Float[Tensor, "B T I"],
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    weights: LSTMWeights,
    *,
    forget_bias: float,
    cell_clip: float | None,
    output_clip: float | None,
    resets: StateReset | None = None,
) -> tuple[Float[Tensor, "B T D"], LSTMState]:
    """Read each row from left to right; the state after its last token comes back."""
    num_rows, num_steps = mask.shape
    last, cells = (part.clone(memory_format=torch.contiguous_format) for part in state)
    outputs = inputs.new_empty(num_steps, *last.shape)
    gates = inputs.new_empty(num_rows, len(weights.recurrent))
    shown = torch.zeros_like(cells)  # who does not read is multiplied too
    bias = bias_with_forget(weights.bias, forget_bias)
    busy = mask.T.contiguous()
    clips = (math.inf if clip is None else clip for clip in (cell_clip, output_clip))
    clips = list(map(ctypes.c_float, clips))
    starting = set() if resets is None else set(resets.mask.any(dim=0).nonzero().flatten().tolist())
    span = max(1, eager.COLUMNS // num_rows)
    for begin, end in pairwise(sorted({*range(0, num_steps, span), *starting, num_steps})):
        if resets is not None and begin in starting:
            at = resets.mask[:, begin]
            last[at], cells[at] = resets.state.output[at], resets.state.cell[at]
        driven = _drive(inputs[:, begin:end], weights.input) + bias
        parts = (driven, busy[begin:end], cells, last, outputs[begin:end], gates, shown)
        sizes = (end - begin, *cells.shape, last.shape[1])
        _call(
            "few_steps",
            *(weights.recurrent, weights.projection, *parts),
            numbers=sizes,
            clips=clips,
            threads=threads(num_rows * weights.recurrent.numel()),
        )
    return outputs.transpose(0, 1), LSTMState(last, cells)


def multiply(
    weight: Float[Tensor, "M K"], rows: Float[Tensor, "B K"], out: Float[Tensor, "M B"]
) -> None:
    """Multiply, where rows are not too wide and all but `out` lie row by row."""
    assert weight.shape == (len(out), rows.shape[1])  # others would be wrong without a word
    assert 1 <= rows.shape[1] <= _WIDEST
    numbers = (*out.stride(), *weight.shape, len(rows))
    _call(
        "few_rows", weight, rows, out, numbers=numbers, threads=threads(len(rows) * weight.numel())
    )


def _drive(
    inputs: Float[Tensor, "B S I"], weight: Float[Tensor, "G I"] | None
) -> Float[Tensor, "S B G"]:
    """Give what the inputs alone say to the gates."""
    inputs = inputs.transpose(0, 1).contiguous()
    if weight is None:
        return inputs
    rows = inputs.flatten(0, 1)
    if len(rows) > _MANY or rows.shape[1] > _WIDEST or not weight.is_contiguous():
        return functional.linear(inputs, weight)
    driven = rows.new_empty(len(rows), len(weight))
    multiply(weight, rows, driven.T)
    return driven.unflatten(0, inputs.shape[:2])


def _call(
    name: str,
    *tensors: Tensor | None,
    numbers: tuple[int, ...],
    threads: int,
    clips: list[ctypes.c_float] | None = None,
) -> None:
    library = _library()
    assert library is not None
    addresses = (None if tensor is None else tensor.data_ptr() for tensor in tensors)
    library[name](
        *map(ctypes.c_void_p, addresses),
        *map(ctypes.c_int64, numbers),
        *(clips or ()),
        ctypes.c_int64(threads),
    )


def _library() -> ctypes.CDLL | None:
    """Sums of products may be fused here: each is of one weight's row and one row alone."""
    return compiled.library(SOURCE, (*wide(), "-ffp-contract=fast"))
