"""The projected LSTM with its gradient written by hand: the kernel that trains.

Autograd through the definition runs a dozen small kernels per step, keeps what each of them made,
and adds to the gradient of every weight at each step. Here a step has two matmuls, forth and back,
with one kernel behind each (`pointwise.py`, fused on a GPU), and the gradient of a weight is one
matmul after the last step:

    [x_t ; h_(t-1)] -> gates -> cell, hidden -> projected -> h_t

Time comes first in all that is kept: a step is one block of memory. Under autocast the matmuls and
what they read have its precision; the cells, the weights and their gradients keep their own.

Shapes: B sentences, T tokens, I input width, D output width, H cell width,
G = 4H rows of gates, S = T + 1 steps and the end, W = I + D.
"""

from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmore.model.lstm import pointwise, reference
from elmore.model.lstm.reference import GATES, LSTMState, LSTMWeights, StateReset


def run(
    inputs: Float[Tensor, "B T I"],
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    weights: LSTMWeights,
    *,
    forget_bias: float,
    cell_clip: float | None,
    output_clip: float | None,
    resets: StateReset | None = None,
) -> tuple[Float[Tensor, "B T D"], LSTMState]:
    """Read each row from left to right; the state after its last token comes back."""
    learned_start = resets is not None and any(part.requires_grad for part in resets.state)
    if learned_start or weights.input is None:
        return reference.run(  # rare, and right there
            inputs,
            mask,
            state,
            weights,
            forget_bias=forget_bias,
            cell_clip=cell_clip,
            output_clip=output_clip,
            resets=resets,
        )
    start = to = _cast(state, _matmul_dtype(inputs))
    alive = _by_step(mask, beyond=True)
    fresh = torch.zeros_like(alive)
    if resets is not None:
        to = _cast(resets.state, start.output.dtype)
        fresh = _by_step(resets.mask, beyond=False)
        start = LSTMState(*(torch.where(fresh[0], *pair) for pair in zip(to, start, strict=True)))
    plan = _Plan(
        alive,
        fresh,
        LSTMState(*(part.detach() for part in to)),
        forget_bias,
        cell_clip,
        None if weights.projection is None else output_clip,
    )
    outputs, *end = ProjectedLSTMFunction.apply(plan, inputs, *start, *weights)
    return outputs, LSTMState(*end)


class _Plan(NamedTuple):
    """What has no gradient; the flags have one step more than there are tokens."""

    alive: Bool[Tensor, "S B 1"]
    fresh: Bool[Tensor, "S B 1"]
    to: LSTMState
    forget_bias: float
    cell_clip: float | None
    output_clip: float | None


class _Kept(NamedTuple):
    """What the way back needs; the gates are activated anew there, which spares keeping them."""

    seen: Float[Tensor, "S B W"]
    """What each step reads: its input, and the output before it."""
    gates: Float[Tensor, "T B G"]
    """Before their bias."""
    cells: Float[Tensor, "S B H"]
    """What each step starts from, and the end."""
    hidden: Float[Tensor, "T B H"]
    projected: Float[Tensor, "T B D"]
    """Before the clip: what is at its edge still passes a gradient."""
    weight: Float[Tensor, "G W"]
    bias: Float[Tensor, " G"]
    projection: Float[Tensor, "D H"] | None


class ProjectedLSTMFunction(torch.autograd.Function):
    """The recurrence with a hand-written backward."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch has no public name for it
        plan: _Plan,
        inputs: Float[Tensor, "B T I"],
        output: Float[Tensor, "B D"],
        cell: Float[Tensor, "B H"],
        input_weight: Float[Tensor, "G I"],
        recurrent_weight: Float[Tensor, "G D"],
        bias: Float[Tensor, " G"],
        projection: Float[Tensor, "D H"] | None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D"], Float[Tensor, "B H"]]:
        """Run all steps and save what the backward needs."""
        weights = LSTMWeights(input_weight, recurrent_weight, bias, projection)
        kept = _prepare(inputs, LSTMState(output, cell), weights, plan.forget_bias)
        with torch.cuda.device_of(inputs):
            outputs = _forth(kept, plan)
        ctx.plan, ctx.weight_dtype = plan, bias.dtype
        ctx.save_for_backward(*kept)
        last = kept.seen[-1, :, inputs.shape[2] :]
        return outputs.transpose(0, 1), last.clone(), kept.cells[-1].clone()

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the inputs, the initial state and the weights."""
        kept, dtype = _Kept(*ctx.saved_tensors), ctx.weight_dtype
        outputs_grad, output_grad, cell_grad = grad_outputs
        outputs_grad = outputs_grad.transpose(0, 1).contiguous()
        with torch.autocast(outputs_grad.device.type, enabled=False):
            seen, gates, projected, output, cell = _back(
                kept, ctx.plan, outputs_grad, output_grad, cell_grad
            )
            weight = _sum_of_products(gates, kept.seen[:-1], dtype)
            projection = None
            if kept.projection is not None:
                projection = _sum_of_products(projected, kept.hidden, dtype)
        input_width = seen.shape[2] - output.shape[1]
        return (
            None,
            seen[:-1, :, :input_width].transpose(0, 1),
            output,
            cell,
            weight[:, :input_width],
            weight[:, input_width:],
            gates.sum(dim=(0, 1), dtype=dtype),
            projection,
        )


def _prepare(
    inputs: Float[Tensor, "B T I"], start: LSTMState, weights: LSTMWeights, forget_bias: float
) -> _Kept:
    """Cast the weights once, put the inputs in their place and make room for the rest."""
    output, cell = start
    (num_rows, num_steps, input_width), dtype = inputs.shape, output.dtype
    assert weights.input is not None
    weight = torch.cat([weights.input.to(dtype), weights.recurrent.to(dtype)], dim=1)
    bias = weights.bias.to(cell.dtype, copy=True)
    bias.chunk(4)[GATES.index("forget")].add_(forget_bias)
    seen = output.new_empty(num_steps + 1, num_rows, weight.shape[1])
    seen[:-1, :, :input_width] = inputs.transpose(0, 1)
    seen[0, :, input_width:] = output
    gates = output.new_empty(num_steps, num_rows, len(weight))
    cells = cell.new_empty(num_steps + 1, *cell.shape)
    cells[0] = cell
    hidden = output.new_empty(num_steps, *cell.shape)
    projected, projection = hidden, weights.projection
    if projection is not None:
        projected, projection = output.new_empty(num_steps, *output.shape), projection.to(dtype)
    return _Kept(seen, gates, cells, hidden, projected, weight, bias, projection)


def _forth(kept: _Kept, plan: _Plan) -> Float[Tensor, "T B D"]:
    """Fill what was prepared, step by step; what the layer shows comes back."""
    kernels = _kernels(kept.seen.device)
    outputs = torch.empty_like(kept.projected)
    weight = kept.weight.T
    projection = None if kept.projection is None else kept.projection.T
    seen, alive, fresh, cells = (each.unbind() for each in (kept.seen, *plan[:2], kept.cells))
    output = kept.seen[:, :, -outputs.shape[2] :].unbind()
    steps = zip(kept.gates, kept.hidden, kept.projected, outputs, strict=True)
    for t, (gates, hidden, projected, shown) in enumerate(steps):
        flags = alive[t], fresh[t + 1]
        torch.mm(seen[t], weight, out=gates)
        kernels.cell_step(
            gates, kept.bias, cells[t], *flags, plan.to.cell, plan.cell_clip, hidden, cells[t + 1]
        )
        if projection is not None:
            torch.mm(hidden, projection, out=projected)
        kernels.output_step(
            projected, output[t], *flags, plan.to.output, plan.output_clip, shown, output[t + 1]
        )
    return outputs


def _back(
    kept: _Kept,
    plan: _Plan,
    outputs_grad: Float[Tensor, "T B D"],
    output_grad: Float[Tensor, "B D"],
    cell_grad: Float[Tensor, "B H"],
) -> tuple[Tensor, ...]:
    """Give the gradients of what was seen, of gates and projections, and of the first state."""
    kernels = _kernels(kept.seen.device)
    grads = seen_grad, gates_grad, projected_grad = [
        torch.empty_like(each) for each in (kept.seen, kept.gates, kept.projected)
    ]
    output_part = seen_grad[:, :, -output_grad.shape[1] :]
    output_part[-1] = output_grad
    cell_grad = cell_grad.clone(memory_format=torch.contiguous_format)
    waiting = torch.zeros_like(output_grad, dtype=cell_grad.dtype)
    hidden_grad = torch.empty_like(kept.hidden[0])

    alive, fresh, came_back = plan.alive.unbind(), plan.fresh.unbind(), output_part.unbind()
    per_step = (kept.gates, kept.cells, kept.projected, outputs_grad, *grads)
    steps = list(zip(*(each.unbind() for each in per_step), strict=False))  # cells have an end
    for t in reversed(range(len(steps))):
        gates, cell, projected, shown, to_seen, to_gates, to_projected = steps[t]
        kernels.output_gradient(
            shown,
            came_back[t + 1],
            projected,
            alive[t],
            alive[t + 1],
            fresh[t + 1],
            plan.output_clip,
            waiting,
            to_projected,
        )
        if kept.projection is None:
            hidden_grad = to_projected
        else:
            torch.mm(to_projected, kept.projection, out=hidden_grad)
        kernels.cell_gradient(
            gates,
            kept.bias,
            cell,
            hidden_grad,
            alive[t],
            fresh[t + 1],
            plan.cell_clip,
            cell_grad,
            to_gates,
        )
        torch.mm(to_gates, kept.weight, out=to_seen)
    first = came_back[0] + torch.where(alive[0], 0, waiting)
    return seen_grad, gates_grad, projected_grad, first.to(output_grad.dtype), cell_grad


def _kernels(device: torch.device) -> ModuleType:
    """Fused where there is a GPU and Triton, which comes with torch for it."""
    if device.type == "cuda" and find_spec("triton"):
        from elmore.model.lstm import triton

        return triton
    return pointwise


def _sum_of_products(
    left: Float[Tensor, "T B X"], right: Float[Tensor, "T B Y"], dtype: torch.dtype
) -> Float[Tensor, "X Y"]:
    """Multiply over all tokens at once; on a GPU the sum is never rounded to its factors."""
    left, right = left.flatten(0, 1).T, right.flatten(0, 1)
    if left.dtype == dtype or not left.is_cuda:
        return (left @ right).to(dtype)
    return torch.mm(left, right, out_dtype=dtype)


def _matmul_dtype(inputs: Tensor) -> torch.dtype:
    if torch.is_autocast_enabled(inputs.device.type):
        return torch.get_autocast_dtype(inputs.device.type)
    return inputs.dtype


def _cast(state: LSTMState, dtype: torch.dtype) -> LSTMState:
    """Let the output be what a matmul reads; a cell sums over many steps, so it stays precise."""
    precise = torch.promote_types(dtype, torch.float32)
    return LSTMState(state.output.to(dtype).contiguous(), state.cell.to(precise).contiguous())


def _by_step(flags: Bool[Tensor, "B T"], *, beyond: bool) -> Bool[Tensor, "S B 1"]:
    """Put time first, and one step more at the end."""
    end = torch.full_like(flags[:, :1], beyond)
    return torch.cat([flags, end], dim=1).T.contiguous()[:, :, None]
