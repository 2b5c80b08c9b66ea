"""What the C of tiles.h is given: many sentences in columns, some side by side.

Shapes: B sentences in N tiles of C columns, T tokens, D output width, G gates. W is any width.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from elmore.model.lstm import steps
from elmore.model.lstm.reference import LSTMState

FEWEST = 9  # rows: up to 8 there are quicker ways
_EIGHT = 8  # cells at a time, or half as many


def can_hold(state: LSTMState) -> bool:
    """Tell whether there are many rows, of widths that fit."""
    return len(state.output) >= FEWEST and all(part.shape[1] % _EIGHT == 0 for part in state)


def tiled(rows: Float[Tensor, "*T B W"], columns: int) -> Float[Tensor, "*T N W C"]:
    """Lay rows out in columns, some side by side; what is missing in the last tile is zero."""
    whole = functional.pad(rows, (0, 0, 0, -rows.shape[-2] % columns))
    return whole.unflatten(-2, (-1, columns)).transpose(-2, -1).contiguous()


def read(
    kernel: Callable[[object], object],
    driven: Float[Tensor, "B T G"] | None,
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    *,
    columns: int,
    **how: Any,  # noqa: ANN401
) -> tuple[Float[Tensor, "B T D"], LSTMState]:
    """Read each row from left to right; the kernel knows of inputs that are not driven."""
    last, cells = (tiled(part, columns) for part in state)
    outputs = steps.take(kernel, driven, mask, state, last, cells, **how)
    ends = (part.transpose(1, 2).flatten(0, 1)[: len(mask)] for part in (last, cells))
    return outputs, LSTMState(*ends)
