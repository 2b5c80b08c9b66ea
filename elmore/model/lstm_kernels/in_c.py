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
FEW_ROWS = Path(__file__).with_name("few_rows.c")
MOST_ROWS = 8  # from there on a library's product is as quick
_WIDE = {"AVX2": ("-mavx2", "-mfma"), "AVX512": ("-mavx512f", "-mfma")}


def available() -> bool:
    """Say whether the part in C is there, or can be built."""
    return _library() is not None


def _library() -> ctypes.CDLL | None:
    return compiled.library(SOURCE, _WIDE.get(torch.backends.cpu.get_cpu_capability(), ()))


def _few_rows() -> ctypes.CDLL | None:
    """Sums of products may be fused here: each is of one weight's row and one row alone."""
    wide = _WIDE.get(torch.backends.cpu.get_cpu_capability(), ())
    return compiled.library(FEW_ROWS, (*wide, "-ffp-contract=fast"))


def step(
    gates: Float[Tensor, "G B"],
    driven: Float[Tensor, "G B"],
    bias: Float[Tensor, " G"],
    cell: Float[Tensor, "H B"],
    hidden: Float[Tensor, "H B"],
    cell_clip: float | None,
) -> None:
    """Do what `in_place.step` does; leave to it what C cannot do, or all."""
    library = _library()
    if library is None or not _can_be_read(gates, driven, bias, cell, hidden):
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


def few_rows(
    weight: Float[Tensor, "M K"], rows: Float[Tensor, "B K"], out: Float[Tensor, "M B"]
) -> bool:
    """Multiply where there are 2 to 8 rows that C can read; say whether it is done."""
    if not 2 <= len(rows) <= MOST_ROWS or not _can_be_read(weight, rows, out):
        return False
    library = _few_rows()
    if library is None or not weight.is_contiguous():
        return False
    rows = rows.contiguous()
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    library.few_rows(
        *(pointer(tensor.data_ptr()) for tensor in (weight, rows, out)),
        *map(whole, (*out.stride(), *weight.shape, len(rows))),
    )
    return True


def _can_be_read(*tensors: Tensor) -> bool:
    """Tell whether C knows these numbers, and where they are."""
    return all(tensor.is_cpu and tensor.dtype == torch.float for tensor in tensors)


run = partial(in_place.run, step=step, few_rows=few_rows)
