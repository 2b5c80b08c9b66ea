"""The kernel that works `in_place`, its element-wise part in C: single precision, on a CPU.

Shapes: B sentences, H cell width, G = 4H gates.
"""

import ctypes
import math
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from elmore import compiled
from elmore.model.lstm_kernels import in_place

SOURCE = Path(__file__).with_name("cell.c")
_WIDE = {"AVX2": ("-mavx2", "-mfma"), "AVX512": ("-mavx512f", "-mfma")}


def available() -> bool:
    """Say whether the part in C is there, or can be built."""
    return _library() is not None


def _library() -> ctypes.CDLL | None:
    return compiled.library(SOURCE, _WIDE.get(torch.backends.cpu.get_cpu_capability(), ()))


def step(
    gates: Float[Tensor, "G B"],
    driven: Float[Tensor, "G B"],
    bias: Float[Tensor, " G"],
    cell: Float[Tensor, "H B"],
    hidden: Float[Tensor, "H B"],
    cell_clip: float | None,
) -> None:
    """Do what `in_place.step` does; leave to it what is not single precision, or all."""
    library = _library()
    if library is None or gates.dtype != torch.float:
        in_place.step(gates, driven, bias, cell, hidden, cell_clip)
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
    )


run = partial(in_place.run, step=step)
