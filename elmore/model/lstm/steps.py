"""What the C of steps.h is given: all steps of a layer are taken in one call.

Shapes: B sentences, T tokens, I input width, D output width, G gates. How the last outputs and the
cells lie is the kernel's own matter.
"""

import ctypes
import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from elmore.model.lstm.reference import GATES, LSTMState, StateReset


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
    inputs: Float[Tensor, "B T I"],
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    *,
    width: int,
    recurrent: Sequence[int],
) -> None:
    """Raise where these are not of one size, or do not fit the weights: C would not notice.

    They fit where inputs are of that width, and the recurrent weight has such a shape.
    """
    gates, outputs = recurrent
    rows = {len(mask), *map(len, state)}
    wide = (inputs.shape[2], *(part.shape[1] for part in state))
    expected = (width, outputs, gates // len(GATES))
    if mask.shape != inputs.shape[:2] or len(rows) > 1 or wide != expected:
        shapes = ", ".join(str(tuple(part.shape)) for part in (inputs, mask, *state))
        raise ValueError(
            f"inputs, mask, outputs and cells are {shapes}: expected as many rows and steps in "
            "each, inputs {} wide, outputs {} and cells {}".format(*expected)
        )


def is_cpu_float32(*tensors: Tensor) -> bool:
    """Return whether all tensors are float32 on the CPU."""
    return all(tensor.is_cpu and tensor.dtype == torch.float for tensor in tensors)


def is_readable_by_c(
    inputs: Float[Tensor, "B T I"] | None,
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    resets: StateReset | None = None,
) -> bool:
    """Return whether the C kernels can read these tensors: float32 on the CPU, masks bool."""
    numbers, masks = [*state] if inputs is None else [inputs, *state], [mask]
    if resets is not None:
        numbers += resets.state
        masks.append(resets.mask)
    are_masks = all(mask.is_cpu and mask.dtype == torch.bool for mask in masks)
    return are_masks and is_cpu_float32(*numbers)


def take(
    kernel: Callable[[object], object],
    driven: Float[Tensor, "B T G"] | None,
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    last: Float[Tensor, "..."],
    cells: Float[Tensor, "..."],
    *,
    bias: Float[Tensor, " G"],
    cell_clip: float | None,
    output_clip: float | None,
    resets: StateReset | None,
) -> Float[Tensor, "B T D"]:
    """Give the outputs of every step; the state, laid out in `last` and `cells`, goes on there.

    The kernel knows of inputs that are not driven.
    """
    if not is_readable_by_c(driven, mask, state, resets):
        raise ValueError(
            "the C kernels read float32 tensors and bool masks on the CPU; found others"
        )
    num_rows, num_steps = mask.shape
    by_step = by_row = 0
    if driven is not None:
        driven = driven if driven.stride(2) == 1 else driven.contiguous()
        by_row, by_step, _ = driven.stride()
    outputs = last.new_empty(num_steps, *state.output.shape)
    busy, shown = mask.T.contiguous(), torch.empty_like(cells)
    starts, first = None, (None, None)
    if resets is not None:
        if resets.mask.shape != mask.shape or any(
            a.shape != b.shape for a, b in zip(resets.state, state, strict=True)
        ):
            raise ValueError("resets are for other rows or steps than the mask and the state have")
        starts = resets.mask.T.contiguous()
        first = tuple(part.contiguous() for part in resets.state)
    clips = (math.inf if clip is None else clip for clip in (cell_clip, output_clip))
    steps = _Steps(
        *map(address, (bias, driven)),
        *(by_step, by_row),
        *map(address, (busy, starts, *first, cells, last, shown, outputs)),
        *(num_steps, num_rows, state.cell.shape[1], state.output.shape[1]),
        *clips,
    )
    kernel(ctypes.byref(steps))
    return outputs.transpose(0, 1)


def address(tensor: Tensor | None) -> int | None:
    """Give what the C takes for a tensor; it holds while the tensor does."""
    return None if tensor is None else tensor.data_ptr()
