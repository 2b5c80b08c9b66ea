"""What a step does element by element, forth and back, in plain torch; `triton.py` has it fused.

A step of one layer is two matmuls with something between and something behind:

    gates -> cell_step -> hidden -> projection -> output_step -> what the next step reads

Results are written into the tensors given last. A row that is not `alive` has no token here: its
output is zero and its state stays. A row that is `fresh` starts a sentence at the next step: the
state it hands on is `to`.

Shapes: B sentences, D output width, H cell width, G = 4H rows of gates. Flags are (B, 1).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def cell_step(
    gates: Float[Tensor, "B G"],
    bias: Float[Tensor, " G"],
    cell: Float[Tensor, "B H"],
    alive: Bool[Tensor, "B 1"],
    fresh: Bool[Tensor, "B 1"],
    to: Float[Tensor, "B H"],
    clip: float | None,
    hidden: Float[Tensor, "B H"],
    next_cell: Float[Tensor, "B H"],
) -> None:
    """Let the gates, still without bias, act on the cell."""
    i, f, g, o = _activate(gates, bias)
    new_cell = _clamp(torch.addcmul(f * cell, i, g), clip)
    hidden.copy_(o * torch.tanh(new_cell))
    next_cell.copy_(torch.where(fresh, to, torch.where(alive, new_cell, cell)))


def output_step(
    projected: Float[Tensor, "B D"],
    output: Float[Tensor, "B D"],
    alive: Bool[Tensor, "B 1"],
    fresh: Bool[Tensor, "B 1"],
    to: Float[Tensor, "B D"],
    clip: float | None,
    shown: Float[Tensor, "B D"],
    next_output: Float[Tensor, "B D"],
) -> None:
    """Clip the projection: what the layer shows, and what the next step reads of it."""
    new_output = _clamp(projected, clip)
    shown.copy_(new_output * alive)
    next_output.copy_(torch.where(fresh, to, torch.where(alive, new_output, output)))


def output_gradient(
    shown_grad: Float[Tensor, "B D"],
    next_grad: Float[Tensor, "B D"],
    projected: Float[Tensor, "B D"],
    alive: Bool[Tensor, "B 1"],
    next_alive: Bool[Tensor, "B 1"],
    fresh: Bool[Tensor, "B 1"],
    clip: float | None,
    waiting: Float[Tensor, "B D"],
    projected_grad: Float[Tensor, "B D"],
) -> None:
    """Undo `output_step`.

    `next_grad` is what came back through the matmul of the next step. What comes back to a row
    that rests there does so around it: it lies `waiting`, and is replaced by what waits here.
    """
    returned = next_grad + torch.where(next_alive, 0, waiting)
    waiting.copy_(torch.where(fresh, 0, returned))
    passes = alive if clip is None else alive & (projected.abs() <= clip)
    projected_grad.copy_(torch.where(passes, shown_grad + waiting, 0))


def cell_gradient(
    gates: Float[Tensor, "B G"],
    bias: Float[Tensor, " G"],
    cell: Float[Tensor, "B H"],
    hidden_grad: Float[Tensor, "B H"],
    alive: Bool[Tensor, "B 1"],
    fresh: Bool[Tensor, "B 1"],
    clip: float | None,
    cell_grad: Float[Tensor, "B H"],
    gates_grad: Float[Tensor, "B G"],
) -> None:
    """Undo `cell_step`: `cell_grad` is that of the next cell, and becomes that of this one."""
    i, f, g, o = _activate(gates, bias)
    new_cell = torch.addcmul(f * cell, i, g)
    squashed = torch.tanh(_clamp(new_cell, clip))
    handed_on = torch.where(fresh, 0, cell_grad)
    grad = torch.addcmul(handed_on, hidden_grad * o, 1 - squashed**2)
    passes = alive if clip is None else alive & (new_cell.abs() <= clip)
    grad = torch.where(passes, grad, 0)
    parts = (
        grad * g * i * (1 - i),
        grad * cell * f * (1 - f),
        grad * i * (1 - g**2),
        hidden_grad * squashed * o * (1 - o),  # zero where nobody is alive, as hidden_grad is
    )
    for part, into in zip(parts, gates_grad.chunk(4, dim=1), strict=True):
        into.copy_(part)
    cell_grad.copy_(torch.where(alive, grad * f, handed_on))


def _activate(
    gates: Float[Tensor, "B G"], bias: Float[Tensor, " G"]
) -> tuple[Float[Tensor, "B H"], ...]:
    i, f, g, o = (gates + bias).chunk(4, dim=1)
    return torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)


def _clamp(values: Float[Tensor, "B H"], clip: float | None) -> Float[Tensor, "B H"]:
    return values if clip is None else values.clamp(-clip, clip)
