"""An LSTM layer with a highway inside its recurrence (He et al., 2017; Zhang et al., 2016).

    o, r, i, f = sigmoid(W x_t + U h_(t-1) + b)       j = tanh(W x_t + U h_(t-1) + b)
    c_t = f * c_(t-1) + i * j
    h_t = z * (r * o * tanh(c_t) + (1 - r) * V x_t)

o, i and f are the gates of an LSTM, j its candidate, r the gate of the highway, z a dropout mask
that all steps share (variational dropout). V x_t bypasses the cell. Unlike a highway between
layers, h_t is also the recurrent state. So no fused kernel of cuDNN fits, and autograd through a
loop would run some forty small kernels per step. Here the inputs of all steps are one matmul, and a
step and its backward are one matmul each and one kernel of Triton after or before it
(`highway_triton.py`), or without Triton some element-wise kernels (`highway_steps.py`).

Shapes: B sentences, T tokens, I input width, H hidden width, G = 5H gates and candidates in the
order o, r, i, f, j, P = 6H: those and V x.
"""

from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elmore.model.lstm.training import runs_triton
from elmore.tasks.layers import highway_steps


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
        projected, mask = projected.contiguous(), mask.contiguous()
        with torch.cuda.device_of(projected):
            gates, cells, states = _steps(projected.device).run_forward(projected, weight, mask)
        ctx.save_for_backward(gates, cells, states, projected, weight, mask)
        return states[1:]

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the projected inputs and of the recurrent weight."""
        gates, cells, states, projected, weight, mask = ctx.saved_tensors
        run_backward = _steps(mask.device).run_backward
        with torch.autocast(mask.device.type, enabled=False):
            projected_grad = run_backward(grad_outputs[0], gates, cells, projected, weight, mask)
            gates_grad = projected_grad[:, :, : len(weight)].flatten(0, 1)
            weight_grad = gates_grad.T @ states[:-1].flatten(0, 1)
        return projected_grad, weight_grad, None


def _steps(device: torch.device) -> ModuleType:
    """Return the module that runs the steps."""
    if runs_triton(device):
        from elmore.tasks.layers import highway_triton

        return highway_triton
    return highway_steps
