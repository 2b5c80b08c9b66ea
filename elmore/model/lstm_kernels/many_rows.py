"""The projected LSTM for many rows on an ARM CPU, in C: what is read in bulk.

A step is one pass over the weights, from what is read to what the cells show, and all steps are
taken in one call.

Shapes: B sentences in N tiles, T tokens, I input width, D output width, H cell width, G = 4H gates;
I = G where inputs are driven. W is any width.
"""

import ctypes
import math
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from elmore import compiled
from elmore.model.lstm_kernels.few_rows import MOST_ROWS, can_be_read
from elmore.model.lstm_kernels.reference import LSTMState, LSTMWeights, Resets, whole_bias

SOURCE = Path(__file__).with_suffix(".c")
_ROWS, _TILE = 4, 12  # of a weight at a time, and sentences side by side: as in the C


class _Layer(ctypes.Structure):
    """`layer` of the C."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("input", "recurrent", "bias", "projection")),
        ("inputs", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("by_step", "by_row")),
        *((name, ctypes.c_void_p) for name in ("busy", "starts", "first_outputs", "first_cells")),
        *((name, ctypes.c_void_p) for name in ("cells", "last", "shown", "outputs")),
        *((name, ctypes.c_int64) for name in ("num_steps", "num_rows", "num_cells")),
        *((name, ctypes.c_int64) for name in ("width", "input_width")),
        *((name, ctypes.c_float) for name in ("cell_clip", "output_clip")),
    )


def can_run(
    inputs: Float[Tensor, "B T I"],
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    weights: LSTMWeights,
) -> bool:
    """Tell whether these are many rows, on a CPU that they were written for."""
    given = [weight for weight in weights if weight is not None]
    return (
        len(inputs) > MOST_ROWS
        and state.output.shape[1] % _ROWS == 0
        and state.cell.shape[1] % _ROWS == 0
        and all(weight.is_contiguous() for weight in given)
        and can_be_read(inputs, *state, *given)
        and mask.is_cpu
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
    resets: Resets | None = None,
) -> tuple[Float[Tensor, "B T D"], LSTMState]:
    """Read each row from left to right; the state after its last token comes back."""
    library = _library()
    assert library is not None
    num_rows, num_steps = mask.shape
    by_step = by_row = 0
    if weights.input is None:
        inputs = inputs if inputs.stride(2) == 1 else inputs.contiguous()
        by_row, by_step, _ = inputs.stride()
    else:
        inputs = _tiled(inputs.transpose(0, 1))
    last, cells = map(_tiled, state)
    outputs = last.new_empty(num_steps, *state.output.shape)
    shown, bias = torch.empty_like(cells), whole_bias(weights.bias, forget_bias)
    busy, starts, first = mask.T.contiguous(), None, (None, None)
    if resets is not None:
        starts = resets.at.T.contiguous()
        first = tuple(part.contiguous() for part in resets.to)
    clips = (math.inf if clip is None else clip for clip in (cell_clip, output_clip))
    layer = _Layer(
        *map(_address, (weights.input, weights.recurrent, bias, weights.projection, inputs)),
        by_step,
        by_row,
        *map(_address, (busy, starts, *first, cells, last, shown, outputs)),
        *(num_steps, num_rows, state.cell.shape[1], state.output.shape[1]),
        0 if weights.input is None else weights.input.shape[1],
        *clips,
    )
    library.many_steps(ctypes.byref(layer), ctypes.c_int64(torch.get_num_threads()))
    ends = (part.transpose(1, 2).flatten(0, 1)[:num_rows] for part in (last, cells))
    return outputs.transpose(0, 1), LSTMState(*ends)


def _tiled(rows: Float[Tensor, "*T B W"]) -> Float[Tensor, "*T N W 12"]:
    """Lay rows out in columns, some side by side; what is missing in the last tile is zero."""
    whole = functional.pad(rows, (0, 0, 0, -rows.shape[-2] % _TILE))
    return whole.unflatten(-2, (-1, _TILE)).transpose(-2, -1).contiguous()


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _library() -> ctypes.CDLL | None:
    library = compiled.library(SOURCE)
    return library if library is not None and library.many_rows_work() else None
