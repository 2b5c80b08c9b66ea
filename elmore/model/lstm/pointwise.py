"""The element-wise parts of a step, forward and backward, in torch; `triton.py` fuses them.

A step of one layer is two matmuls, each followed by an element-wise part:

    gates -> cell_step -> hidden -> projection -> output_step -> the next step

Results are written into the tensors given last. Where `mask` is false there is no token: the output
is zero and the state is kept. Where `reset_mask` is true a sentence starts at the next step: the
state that is passed on is `reset_to`.

Shapes: B rows, D output width, H cell width, G = 4H rows of gates. Flags are (B, 1).
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_sigmoid_gradient = torch.ops.aten.sigmoid_backward.grad_input  # grad * y * (1 - y)
_tanh_gradient = torch.ops.aten.tanh_backward.grad_input  # grad * (1 - y * y)


def cell_step(
    gates: Float[Tensor, "B G"],
    gate_inputs: Float[Tensor, "B G"] | None,
    bias: Float[Tensor, " G"],
    cell: Float[Tensor, "B H"],
    mask: Bool[Tensor, "B 1"],
    reset_mask: Bool[Tensor, "B 1"],
    reset_to: Float[Tensor, "B H"],
    clip: float | None,
    hidden: Float[Tensor, "B H"],
    next_cell: Float[Tensor, "B H"],
) -> None:
    """Update the cell from the gates, to which their inputs and their bias are added.

    Without `gate_inputs` the gates have them already; with them the gates may be overwritten.
    """
    if gate_inputs is not None:
        gates.add_(gate_inputs)
    i, f, g, o = _activate(gates, bias)
    new_cell = _clamp(f.mul_(cell).addcmul_(i, g), clip)
    torch.mul(o, torch.tanh(new_cell), out=hidden)
    next_cell.copy_(torch.where(reset_mask, reset_to, torch.where(mask, new_cell, cell)))


def output_step(
    projected: Float[Tensor, "B D"],
    output: Float[Tensor, "B D"],
    mask: Bool[Tensor, "B 1"],
    reset_mask: Bool[Tensor, "B 1"],
    reset_to: Float[Tensor, "B D"],
    clip: float | None,
    masked: Float[Tensor, "B D"],
    next_output: Float[Tensor, "B D"],
) -> None:
    """Clip the projection; write the masked output and the output of the next step."""
    new_output = _clamp(projected, clip)
    torch.mul(new_output, mask, out=masked)
    next_output.copy_(torch.where(reset_mask, reset_to, torch.where(mask, new_output, output)))


def output_gradient(
    masked_grad: Float[Tensor, "B D"],
    next_grad: Float[Tensor, "B D"],
    projected: Float[Tensor, "B D"],
    mask: Bool[Tensor, "B 1"],
    next_mask: Bool[Tensor, "B 1"],
    reset_mask: Bool[Tensor, "B 1"],
    clip: float | None,
    carried_grad: Float[Tensor, "B D"],
    projected_grad: Float[Tensor, "B D"],
) -> None:
    """Compute the gradient of `output_step`.

    `next_grad` comes through the matmul of the next step. The gradient of a row without a token
    there bypasses it in `carried_grad`, which is updated.
    """
    returned = next_grad + torch.where(next_mask, 0, carried_grad)
    carried_grad.copy_(torch.where(reset_mask, 0, returned))
    passes = mask if clip is None else mask & (projected.abs() <= clip)
    projected_grad.copy_(torch.where(passes, masked_grad + carried_grad, 0))


def cell_gradient(
    gates: Float[Tensor, "B G"],
    bias: Float[Tensor, " G"],
    cell: Float[Tensor, "B H"],
    hidden_grad: Float[Tensor, "B H"],
    mask: Bool[Tensor, "B 1"],
    reset_mask: Bool[Tensor, "B 1"],
    clip: float | None,
    cell_grad: Float[Tensor, "B H"],
    gates_grad: Float[Tensor, "B G"],
) -> None:
    """Compute the gradient of `cell_step`; `cell_grad` is updated to that of this cell."""
    i, f, g, o = _activate(gates, bias)
    new_cell = torch.addcmul(f * cell, i, g)
    squashed = torch.tanh(_clamp(new_cell, clip))
    next_grad = torch.where(reset_mask, 0, cell_grad)
    grad = torch.addcmul(next_grad, hidden_grad * o, 1 - squashed**2)
    passes = mask if clip is None else mask & (new_cell.abs() <= clip)
    grad = torch.where(passes, grad, 0)
    into_i, into_f, into_g, into_o = gates_grad.chunk(4, dim=1)
    _sigmoid_gradient(grad * g, i, grad_input=into_i)
    _sigmoid_gradient(grad * cell, f, grad_input=into_f)
    _tanh_gradient(grad * i, g, grad_input=into_g)
    _sigmoid_gradient(hidden_grad * squashed, o, grad_input=into_o)  # zero without a token
    cell_grad.copy_(torch.where(mask, grad * f, next_grad))


def _activate(
    gates: Float[Tensor, "B G"], bias: Float[Tensor, " G"]
) -> tuple[Float[Tensor, "B H"], ...]:
    i, f, g, o = (gates + bias).chunk(4, dim=1)
    return torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)


def _clamp(values: Float[Tensor, "B H"], clip: float | None) -> Float[Tensor, "B H"]:
    return values if clip is None else values.clamp(-clip, clip)
