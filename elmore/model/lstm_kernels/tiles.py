"""What the C of tiles.h is given: many sentences in columns, some side by side.

All steps are taken in one call, whatever multiplies there.

Shapes: B sentences in N tiles of C columns, T tokens, D output width, H cell width, G = 4H gates. W
is any width.
"""

import ctypes
import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from elmore.model.lstm_kernels.reference import LSTMState, Resets

FEWEST = 9  # rows: up to 8 there are quicker ways
_EIGHT = 8  # cells at a time, or half as many


class _Steps(ctypes.Structure):
    """`steps` of the C."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("bias", "driven")),
        *((name, ctypes.c_int64) for name in ("by_step", "by_row")),
        *((name, ctypes.c_void_p) for name in ("busy", "starts", "first_outputs", "first_cells")),
        *((name, ctypes.c_void_p) for name in ("cells", "last", "shown", "outputs")),
        *((name, ctypes.c_int64) for name in ("num_steps", "num_rows", "num_cells", "width")),
        *((name, ctypes.c_float) for name in ("cell_clip", "output_clip")),
    )


def refuse_others(
    inputs: Float[Tensor, "B T I"], mask: Bool[Tensor, "B T"], state: LSTMState, *, width: int
) -> None:
    """Raise where these are not of one size, or inputs not of that width: C would not notice."""
    rows = {len(mask), *map(len, state)}
    if mask.shape != inputs.shape[:2] or len(rows) > 1 or inputs.shape[2] != width:
        shapes = ", ".join(str(tuple(part.shape)) for part in (inputs, mask, *state))
        raise ValueError(
            f"inputs, mask, outputs and cells are {shapes}: expected as many rows and steps in "
            f"each, and inputs {width} wide"
        )


def can_hold(state: LSTMState) -> bool:
    """Tell whether there are many rows, of widths that fit."""
    return len(state.output) >= FEWEST and all(part.shape[1] % _EIGHT == 0 for part in state)


def tiled(rows: Float[Tensor, "*T B W"], columns: int) -> Float[Tensor, "*T N W C"]:
    """Lay rows out in columns, some side by side; what is missing in the last tile is zero."""
    whole = functional.pad(rows, (0, 0, 0, -rows.shape[-2] % columns))
    return whole.unflatten(-2, (-1, columns)).transpose(-2, -1).contiguous()


def read(
    take_steps: Callable[[object], object],
    driven: Float[Tensor, "B T G"] | None,
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    *,
    columns: int,
    bias: Float[Tensor, " G"],
    cell_clip: float | None,
    output_clip: float | None,
    resets: Resets | None,
) -> tuple[Float[Tensor, "B T D"], LSTMState]:
    """Read each row from left to right; who takes the steps knows of inputs that are not driven."""
    num_rows, num_steps = mask.shape
    by_step = by_row = 0
    if driven is not None:
        driven = driven if driven.stride(2) == 1 else driven.contiguous()
        by_row, by_step, _ = driven.stride()
    last, cells = (tiled(part, columns) for part in state)
    outputs = last.new_empty(num_steps, *state.output.shape)
    busy, shown = mask.T.contiguous(), torch.empty_like(cells)
    starts, first = None, (None, None)
    if resets is not None:
        if resets.at.shape != mask.shape or any(
            a.shape != b.shape for a, b in zip(resets.to, state, strict=True)
        ):
            raise ValueError("resets are for other rows or steps than the mask and the state have")
        starts = resets.at.T.contiguous()
        first = tuple(part.contiguous() for part in resets.to)
    clips = (math.inf if clip is None else clip for clip in (cell_clip, output_clip))
    steps = _Steps(
        *map(address, (bias, driven)),
        *(by_step, by_row),
        *map(address, (busy, starts, *first, cells, last, shown, outputs)),
        *(num_steps, num_rows, state.cell.shape[1], state.output.shape[1]),
        *clips,
    )
    take_steps(ctypes.byref(steps))
    ends = (part.transpose(1, 2).flatten(0, 1)[:num_rows] for part in (last, cells))
    return outputs.transpose(0, 1), LSTMState(*ends)


def address(tensor: Tensor | None) -> int | None:
    """Give what the C takes for a tensor; it holds while the tensor does."""
    return None if tensor is None else tensor.data_ptr()
