"""The projected LSTM for weights that are bytes, on a CPU, in C: what a server reads.

Nothing is rounded: they are the weights themselves, written shorter, and memory has less to bring.

Shapes: B sentences, T tokens, I input width, D output width, G gates; I = G where they are driven.
A weight has M rows, X wide, in parts of which each is P panels of R rows.
"""

import ctypes
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int8
from torch import Tensor
from torch.nn import functional

from elmore import compiled
from elmore.model.lstm import steps
from elmore.model.lstm.reference import LSTMState, StateReset
from elmore.model.lstm.vectors import threads, wide

SOURCE = Path(__file__).parent / "native" / "panels.c"


class Panels(NamedTuple):
    """A weight as the C reads it, from beginning to end; rows that fill a panel up are zero."""

    numbers: Int8[Tensor, "P parts X R"]
    scales: Float[Tensor, "P parts R"]


class LSTMPanels(NamedTuple):
    """`LSTMWeights` with matrices in panels; the forget bias is in the bias."""

    input: Panels
    recurrent: Panels
    bias: Float[Tensor, " G"]
    projection: Panels | None


class _Matrix(ctypes.Structure):
    """`matrix` of the C."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("numbers", "scales")),
        ("width", ctypes.c_int64),
    )


class _Weights(ctypes.Structure):
    """`weights` of the C."""

    _fields_ = (
        *((name, _Matrix) for name in ("input", "recurrent", "projection")),
        ("inputs", ctypes.c_void_p),
    )


def available() -> bool:
    """Say whether the part in C is there, or can be built, and this CPU has vectors for it."""
    library = compiled.library(SOURCE, wide())
    return library is not None and library.rows_of_a_panel() > 0


def in_panels(numbers: Int8[Tensor, "M X"], scales: Float[Tensor, " M"], *, parts: int) -> Panels:
    """Lay out a weight that is whole numbers and a scale for each row.

    Of each part the first panel comes first, then of each the second.
    """
    rows = _library().rows_of_a_panel()
    missing = -(len(numbers) // parts) % rows
    by_part = functional.pad(numbers.unflatten(0, (parts, -1)), (0, 0, 0, missing))
    scales = functional.pad(scales.unflatten(0, (parts, -1)), (0, missing))
    return Panels(
        by_part.unflatten(1, (-1, rows)).permute(1, 0, 3, 2).contiguous(),
        scales.unflatten(1, (-1, rows)).transpose(0, 1).contiguous(),
    )


@torch.no_grad()
def run(
    inputs: Float[Tensor, "B T I"],
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    weights: LSTMPanels,
    *,
    projected: bool,
    cell_clip: float | None,
    output_clip: float | None,
    resets: StateReset | None = None,
) -> tuple[Float[Tensor, "B T D"], LSTMState]:
    """Read each row from left to right; the state after its last token comes back."""
    gates, outputs = len(weights.bias), weights.recurrent.numbers.shape[2]
    width = gates if projected else weights.input.numbers.shape[2]
    steps.refuse_others(inputs, mask, state, width=width, recurrent=(gates, outputs))
    by_step = None if projected else inputs.transpose(0, 1).contiguous()
    matrices = (None if projected else weights.input, weights.recurrent, weights.projection)
    with_ = _Weights(*map(_matrix, matrices), steps.address(by_step))
    called = ctypes.c_int64(threads(len(inputs) * weights.recurrent.numbers.numel()))
    last, cells = (part.clone(memory_format=torch.contiguous_format) for part in state)
    read = steps.take(
        lambda given: _library().panel_steps(given, ctypes.byref(with_), called),
        inputs if projected else None,
        mask,
        state,
        last,
        cells,
        bias=weights.bias,
        cell_clip=cell_clip,
        output_clip=output_clip,
        resets=resets,
    )
    return read, LSTMState(last, cells)


@torch.no_grad()
def multiply(weight: Panels, rows: Float[Tensor, "B X"], *, height: int) -> Float[Tensor, "B M"]:
    """Multiply rows with a weight of this height."""
    count, parts, width, tall = weight.numbers.shape
    assert (count - 1) * tall < height / parts <= count * tall  # or C would write elsewhere
    assert steps.is_cpu_float32(rows)
    if rows.shape[1] != width:
        raise ValueError(f"rows are {rows.shape[1]} wide: expected {width}, as the weight is")
    rows, out = rows.contiguous(), rows.new_empty(len(rows), height)
    sizes = (len(rows), height, parts, threads(len(rows) * weight.numbers.numel()))
    _library().panel_rows(
        ctypes.byref(_matrix(weight)),
        *(ctypes.c_void_p(steps.address(part)) for part in (rows, out)),
        *map(ctypes.c_int64, sizes),
    )
    return out


def _matrix(panels: Panels | None) -> _Matrix:
    if panels is None:
        return _Matrix()
    return _Matrix(*map(steps.address, panels), panels.numbers.shape[2])


def _library() -> ctypes.CDLL:
    """Give what `available` found."""
    library = compiled.library(SOURCE, wide())
    assert library is not None
    return library
