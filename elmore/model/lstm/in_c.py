"""All in C what can be, and else the kernel that works `eager`, its cells in C: on a CPU.

Everything is in single precision.

Shapes: B sentences, T tokens, I input width, D output width, H cell width, G = 4H gates.
"""

import ctypes
import math
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from elmore import compiled
from elmore.model.lstm import eager, few_rows, many_rows, steps
from elmore.model.lstm.reference import LSTMState, LSTMWeights
from elmore.model.lstm.vectors import wide

SOURCE = Path(__file__).parent / "native" / "cell.c"


def available() -> bool:
    """Say whether the part in C is there, or can be built."""
    return _library() is not None


def _library() -> ctypes.CDLL | None:
    return compiled.library(SOURCE, wide())


def step(
    gates: Float[Tensor, "G B"],
    driven: Float[Tensor, "G B"],
    bias: Float[Tensor, " G"],
    cell: Float[Tensor, "H B"],
    hidden: Float[Tensor, "H B"],
    cell_clip: float | None,
) -> None:
    """Do what `eager.step` does; leave to it what C cannot do, or all."""
    library = _library()
    dense = (gates, bias, cell, hidden)
    if (
        library is None
        or not steps.is_cpu_float32(driven, *dense)
        or not all(part.is_contiguous() for part in dense)
    ):
        eager.step(gates, driven, bias, cell, hidden, cell_clip)
        return
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    library.cell_step(
        pointer(gates.data_ptr()),
        pointer(driven.data_ptr()),
        *map(whole, driven.stride()),
        pointer(bias.data_ptr()),
        pointer(cell.data_ptr()),
        pointer(hidden.data_ptr()),
        *map(whole, cell.shape),
        ctypes.c_float(math.inf if cell_clip is None else cell_clip),
        whole(torch.get_num_threads()),  # torch may have another OpenMP, whose number ours is not
    )


def run(
    inputs: Float[Tensor, "B T I"],
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    weights: LSTMWeights,
    **how: Any,  # noqa: ANN401
) -> tuple[Float[Tensor, "B T D"], LSTMState]:
    """Read each row from left to right; the state after its last token comes back."""
    recurrent = weights.recurrent.shape
    wide = recurrent[0] if weights.input is None else weights.input.shape[1]
    steps.refuse_others(inputs, mask, state, width=wide, recurrent=recurrent)
    if few_rows.can_run(inputs, mask, state, weights):
        return few_rows.run(inputs, mask, state, weights, **how)
    if many_rows.can_run(inputs, mask, state, weights):
        return many_rows.run(inputs, mask, state, weights, **how)
    return eager.run(inputs, mask, state, weights, step=step, **how)
