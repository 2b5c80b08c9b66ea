"""An LSTM layer with a highway inside its recurrence (He et al., 2017; Zhang et al., 2016).

    o, r, i, f = sigmoid(W x_t + U h_(t-1) + b)       j = tanh(W x_t + U h_(t-1) + b)
    c_t = f * c_(t-1) + i * j
    h_t = z * (r * o * tanh(c_t) + (1 - r) * V x_t)

o, i and f are the gates of an LSTM, j its candidate, r the gate of the highway, z a dropout mask
that all steps share (variational dropout). V x_t bypasses the cell. Unlike a highway between
layers, h_t is also the recurrent state. So no fused kernel of cuDNN fits, and autograd through a
loop would run some forty small kernels per step. Here the inputs of all steps are one matmul, a
step is one matmul and eight element-wise kernels, its backward one matmul and four: everything
that does not depend on the next step is computed for all steps at once.

Shapes: B sentences, T tokens, S = T + 1, I input width, H hidden width, G = 5H gates and
candidates in the order o, r, i, f, j, P = 6H: those and V x.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


class HighwayLSTM(nn.Module):
    """One layer, which reads each row from left to right.

    Weights start orthogonal, and the forget gate open.
    """

    def __init__(self, input_dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden_dim, self.dropout = hidden_dim, dropout
        self.input_weight = nn.Parameter(torch.empty(6 * hidden_dim, input_dim))
        self.recurrent_weight = nn.Parameter(torch.empty(5 * hidden_dim, hidden_dim))
        self.bias = nn.Parameter(torch.zeros(5 * hidden_dim))
        for weight in (self.input_weight, self.recurrent_weight):
            for block in weight.data.split(hidden_dim):
                nn.init.orthogonal_(block)
        self.bias.data[3 * hidden_dim : 4 * hidden_dim] = 1.0

    def forward(self, x: Float[Tensor, "B T I"]) -> Float[Tensor, "B T H"]:
        """Return the state after each token; padding must follow the tokens."""
        bias = functional.pad(self.bias, (0, self.hidden_dim))  # V x has none
        projected = functional.linear(x.transpose(0, 1), self.input_weight, bias)  # (T, B, P)
        mask = projected.new_ones(x.shape[0], self.hidden_dim)
        mask = functional.dropout(mask, self.dropout, self.training)
        weight = self.recurrent_weight.to(projected.dtype)  # another one under autocast
        return HighwayLSTMFunction.apply(projected, weight, mask).transpose(0, 1)


class HighwayLSTMFunction(torch.autograd.Function):
    """The recurrence with a hand-written backward."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch has no public name for it
        projected: Float[Tensor, "T B P"],
        weight: Float[Tensor, "G H"],
        mask: Float[Tensor, "B H"],
    ) -> Float[Tensor, "T B H"]:
        """Run all steps and save what the backward needs."""
        width = weight.shape[1]
        inputs, carried = projected.split([5 * width, width], dim=2)
        gates = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        states = mask.new_zeros(len(projected) + 1, *mask.shape)
        cells = torch.zeros_like(states)
        to_gates, sigmoids = weight.T, gates[:, :, : 4 * width]
        # Views are made here for all steps: on a GPU the host is what a step waits for.
        state, cell = states.unbind(), cells.unbind()
        parts = (inputs, carried, gates, sigmoids, *gates.chunk(5, dim=2))
        steps = zip(*(part.unbind() for part in parts), strict=True)
        for t, (from_input, bypass, gate, sigmoid, o, r, i, f, j) in enumerate(steps):
            torch.addmm(from_input, state[t], to_gates, out=gate)
            sigmoid.sigmoid_()
            j.tanh_()
            torch.mul(f, cell[t], out=cell[t + 1]).addcmul_(i, j)
            output = cell[t + 1].tanh().mul_(o)
            torch.lerp(bypass, output, r, out=state[t + 1]).mul_(mask)
        ctx.save_for_backward(gates, cells, states, carried, weight, mask)
        return states[1:]

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the projected inputs and of the recurrent weight."""
        gates, cells, states, carried, weight, mask = ctx.saved_tensors
        with torch.autocast(mask.device.type, enabled=False):
            projected_grad = _run_backward(grad_outputs[0], gates, cells, carried, weight, mask)
            gates_grad = projected_grad[:, :, : len(weight)].flatten(0, 1)
            weight_grad = gates_grad.T @ states[:-1].flatten(0, 1)
        return projected_grad, weight_grad, None


def _run_backward(
    states_grad: Float[Tensor, "T B H"],
    gates: Float[Tensor, "T B G"],
    cells: Float[Tensor, "S B H"],
    carried: Float[Tensor, "T B H"],
    weight: Float[Tensor, "G H"],
    mask: Float[Tensor, "B H"],
) -> Float[Tensor, "T B P"]:
    """Return the gradient of gates and bypass."""
    width = weight.shape[1]
    o, r, i, f, j = gates.chunk(5, dim=2)
    squashed = cells[1:].tanh()
    # Derivatives by h_t of o, r and c_t, and by c_t of i, f and j: no step needs another one's.
    by_state = torch.stack(
        [r * squashed * o * (1 - o), (o * squashed - carried) * r * (1 - r)], dim=2
    )
    by_state *= mask[:, None]
    cell_by_state = r * o * (1 - squashed**2) * mask
    by_cell = torch.stack([j * i * (1 - i), cells[:-1] * f * (1 - f), i * (1 - j**2)], dim=2)
    grads = states_grad.new_empty(*gates.shape[:2], 6, width)
    totals = torch.empty_like(cell_by_state)  # the gradient of h_t from above and from h_(t+1)
    cell_grad = torch.zeros_like(mask)
    totals[-1] = states_grad[-1]
    gates_grads, forget = grads.flatten(2)[:, :, : 5 * width].unbind(), f.unbind()
    parts = (states_grad, totals, totals[:, :, None], cell_by_state, by_state, by_cell)
    parts += (grads[:, :, :2], grads[:, :, 2:5])
    steps = list(zip(*(part.unbind() for part in parts), strict=True))
    for t in reversed(range(len(steps))):
        from_above, total, row, to_cell, to_or, to_ifj, or_grad, ifj_grad = steps[t]
        if t + 1 < len(steps):
            torch.addmm(from_above, gates_grads[t + 1], weight, out=total)
            cell_grad.mul_(forget[t + 1])
        cell_grad.addcmul_(total, to_cell)
        torch.mul(row, to_or, out=or_grad)
        torch.mul(cell_grad[:, None], to_ifj, out=ifj_grad)
    grads[:, :, 5] = totals * (1 - r) * mask
    return grads.flatten(2)
