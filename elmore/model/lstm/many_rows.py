"""The projected LSTM for many rows on a CPU, in C: what is read in bulk.

A step is one pass over the weights, from what is read to what the cells show.

Shapes: B sentences, T tokens, I input width, D output width; I = 4H gates where inputs are driven.
"""

import ctypes
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from elmore import compiled
from elmore.model.lstm import steps, tiles
from elmore.model.lstm.reference import LSTMState, LSTMWeights, StateReset, bias_with_forget
from elmore.model.lstm.vectors import threads, wide

SOURCE = Path(__file__).parent / "native" / "many_rows.c"


class _Weights(ctypes.Structure):
    """`weights` of the C."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("input", "recurrent", "projection", "inputs")),
        ("input_width", ctypes.c_int64),
    )


def can_run(
    inputs: Float[Tensor, "B T I"],
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    weights: LSTMWeights,
) -> bool:
    """Tell whether these are many rows, on a CPU of whose vectors the C knows."""
    given = [weight for weight in weights if weight is not None]
    return (
        tiles.can_hold(state)
        and all(weight.is_contiguous() and weight.numel() for weight in given)
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
    library, is_driven = _library(), weights.input is None
    assert library is not None
    columns = library.columns_of_a_tile()
    turned = None if is_driven else tiles.tiled(inputs.transpose(0, 1), columns)
    given = (weights.input, weights.recurrent, weights.projection, turned)
    with_ = _Weights(*map(steps.address, given), 0 if is_driven else inputs.shape[2])
    called = ctypes.c_int64(threads(len(inputs) * weights.recurrent.numel()))
    return tiles.read(
        lambda given: library.many_steps(given, ctypes.byref(with_), called),
        inputs if is_driven else None,
        mask,
        state,
        columns=columns,
        bias=bias_with_forget(weights.bias, forget_bias),
        cell_clip=cell_clip,
        output_clip=output_clip,
        resets=resets,
    )


def _library() -> ctypes.CDLL | None:
    library = compiled.library(SOURCE, wide())
    return library if library is not None and library.columns_of_a_tile() else None
