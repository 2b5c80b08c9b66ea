"""The projected LSTM as an autograd function with a hand-written backward, for training.

Autograd through the reference runs a dozen small kernels per step, saves the result of each, and
adds to the gradient of every weight and of all gate inputs at each step. Here a step has two
matmuls, forward and backward, with one kernel after each (`pointwise.py`, fused on a GPU), and the
gradient of a weight is one matmul after the last step:

    [x_t ; h_(t-1)] -> gates -> cell, hidden -> projected -> h_t

A GPU multiplies inputs and state together, in one launch. A CPU multiplies the inputs of all steps
at once, because it is slow with few rows.

Saved tensors are time-major: a step is one block of memory. Under autocast the matmuls and their
operands have its precision; the cells, the weights and their gradients keep their own.

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
from elmore.model.lstm.call import GATES, Call, DenseWeights, LSTMState, Result

_FEW_ROWS = 32


def run(call: Call) -> Result:
    """Run each row from left to right; return the outputs and the state after the last token.

    Inputs that are projected already, and reset states with a gradient, are rare: `reference` runs
    those calls.
    """
    reset, weights = call.reset, call.weights.dense()
    learned_reset = reset is not None and any(part.requires_grad for part in reset.state)
    if learned_reset or call.projected:
        return reference.run(call)
    start = reset_state = _cast(call.state, _matmul_dtype(call.inputs))
    mask = flags_by_step(call.mask, at_end=True)
    reset_mask = torch.zeros_like(mask)
    if reset is not None:
        reset_state = _cast(reset.state, start.output.dtype)
        reset_mask = flags_by_step(reset.mask, at_end=False)
        pairs = zip(reset_state, start, strict=True)
        start = LSTMState(*(torch.where(reset_mask[0], *pair) for pair in pairs))
    plan = _Plan(
        mask,
        reset_mask,
        LSTMState(*(part.detach() for part in reset_state)),
        call.forget_bias,
        call.cell_clip,
        None if weights.projection is None else call.output_clip,
    )
    outputs, *end = ProjectedLSTMFunction.apply(plan, call.inputs, *start, *weights)
    return outputs, LSTMState(*end)


class _Plan(NamedTuple):
    """Masks, reset state and settings, which have no gradient.

    Masks have one step more than the tokens: the kernels of step t read the flags of step t + 1.
    """

    mask: Bool[Tensor, "S B 1"]
    reset_mask: Bool[Tensor, "S B 1"]
    reset_state: LSTMState
    forget_bias: float
    cell_clip: float | None
    output_clip: float | None


class _Saved(NamedTuple):
    """What backward needs; it recomputes the activated gates, which saves memory."""

    xh: Float[Tensor, "S B W"]
    """[x_t ; h_(t-1)] of each step."""
    gates: Float[Tensor, "T B G"]
    """Pre-activations without the bias."""
    cells: Float[Tensor, "S B H"]
    """The cell before each step, and the last."""
    hidden: Float[Tensor, "T B H"]
    projected: Float[Tensor, "T B D"]
    """Before the clip: a value at the bound still passes its gradient."""
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
        weights = DenseWeights(input_weight, recurrent_weight, bias, projection)
        saved = _prepare(inputs, LSTMState(output, cell), weights, plan.forget_bias)
        with torch.cuda.device_of(inputs):
            outputs = _run_forward(saved, plan)
        ctx.plan, ctx.weight_dtype = plan, bias.dtype
        ctx.save_for_backward(*saved)
        last = saved.xh[-1, :, inputs.shape[2] :]
        return outputs.transpose(0, 1), last.clone(), saved.cells[-1].clone()

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the inputs, the initial state and the weights."""
        saved, dtype = _Saved(*ctx.saved_tensors), ctx.weight_dtype
        outputs_grad, output_grad, cell_grad = grad_outputs
        outputs_grad = outputs_grad.transpose(0, 1).contiguous()
        with torch.autocast(outputs_grad.device.type, enabled=False):
            xh, gates, projected, output, cell = _run_backward(
                saved, ctx.plan, outputs_grad, output_grad, cell_grad
            )
            weight = _sum_of_products(gates, saved.xh[:-1], dtype)
            projection = None
            if saved.projection is not None:
                projection = _sum_of_products(projected, saved.hidden, dtype)
        input_width = xh.shape[2] - output.shape[1]
        return (
            None,
            xh[:-1, :, :input_width].transpose(0, 1),
            output,
            cell,
            weight[:, :input_width],
            weight[:, input_width:],
            gates.sum(dim=(0, 1), dtype=dtype),
            projection,
        )


def _prepare(
    inputs: Float[Tensor, "B T I"], start: LSTMState, weights: DenseWeights, forget_bias: float
) -> _Saved:
    """Cast the weights, copy the inputs and allocate the rest."""
    output, cell = start
    (num_rows, num_steps, input_width), dtype = inputs.shape, output.dtype
    weight = torch.cat([weights.input.to(dtype), weights.recurrent.to(dtype)], dim=1)
    bias = weights.bias.to(cell.dtype, copy=True)
    bias.chunk(4)[GATES.index("forget")].add_(forget_bias)
    xh = output.new_empty(num_steps + 1, num_rows, weight.shape[1])
    xh[:-1, :, :input_width] = inputs.transpose(0, 1)
    xh[0, :, input_width:] = output
    gates = output.new_empty(num_steps, num_rows, len(weight))
    cells = cell.new_empty(num_steps + 1, *cell.shape)
    cells[0] = cell
    hidden = output.new_empty(num_steps, *cell.shape)
    projected, projection = hidden, weights.projection
    if projection is not None:
        projected, projection = output.new_empty(num_steps, *output.shape), projection.to(dtype)
    return _Saved(xh, gates, cells, hidden, projected, weight, bias, projection)


def _run_forward(saved: _Saved, plan: _Plan) -> Float[Tensor, "T B D"]:
    """Fill the saved tensors step by step; return the masked outputs."""
    kernels, reset_state = pointwise_kernels(saved.xh.device), plan.reset_state
    outputs = torch.empty_like(saved.projected)
    first = _first_stepwise_column(saved)
    weight = saved.weight[:, first:].T
    if first:
        if saved.xh.shape[1] < _FEW_ROWS:
            weight = weight.contiguous()  # once per call, and then each step is faster
        inputs, gate_inputs = saved.xh[:-1, :, :first].flatten(0, 1), saved.gates.flatten(0, 1)
        torch.mm(inputs, saved.weight[:, :first].T, out=gate_inputs)
    projection = None if saved.projection is None else saved.projection.T
    stepwise = (saved.xh[:, :, first:], *plan[:2], saved.cells)
    xh, mask, reset_mask, cells = (each.unbind() for each in stepwise)
    output = saved.xh[:, :, -outputs.shape[2] :].unbind()
    steps = zip(saved.gates, saved.hidden, saved.projected, outputs, strict=True)
    for t, (gates, hidden, projected, masked) in enumerate(steps):
        flags = mask[t], reset_mask[t + 1]
        if first:
            torch.addmm(gates, xh[t], weight, out=gates)
        else:
            torch.mm(xh[t], weight, out=gates)
        kernels.cell_step(
            gates,
            None,
            saved.bias,
            cells[t],
            *flags,
            reset_state.cell,
            plan.cell_clip,
            hidden,
            cells[t + 1],
        )
        if projection is not None:
            torch.mm(hidden, projection, out=projected)
        kernels.output_step(
            projected,
            output[t],
            *flags,
            reset_state.output,
            plan.output_clip,
            masked,
            output[t + 1],
        )
    if outputs.is_cuda:
        return outputs
    # In the layout of `reference`: dropout draws its mask in the order of memory on a CPU.
    return outputs.permute(2, 0, 1).contiguous().permute(1, 2, 0)


def _run_backward(
    saved: _Saved,
    plan: _Plan,
    outputs_grad: Float[Tensor, "T B D"],
    output_grad: Float[Tensor, "B D"],
    cell_grad: Float[Tensor, "B H"],
) -> tuple[Tensor, ...]:
    """Return the gradients of xh, gates and projections, and of the initial state."""
    kernels = pointwise_kernels(saved.xh.device)
    xh_grad, gates_grad, projected_grad = (
        torch.empty_like(each) for each in (saved.xh, saved.gates, saved.projected)
    )
    h_grad = xh_grad[:, :, -output_grad.shape[1] :]  # of h_(t-1), by the matmul of step t
    h_grad[-1] = output_grad
    cell_grad = cell_grad.clone(memory_format=torch.contiguous_format)
    carried_grad = torch.zeros_like(output_grad, dtype=cell_grad.dtype)
    hidden_grad = torch.empty_like(saved.hidden[0])

    first = _first_stepwise_column(saved)
    weight = saved.weight[:, first:]
    mask, reset_mask, h_grad = plan.mask.unbind(), plan.reset_mask.unbind(), h_grad.unbind()
    stepwise_grads = xh_grad[:, :, first:], gates_grad, projected_grad
    per_step = (saved.gates, saved.cells, saved.projected, outputs_grad, *stepwise_grads)
    steps = list(zip(*(each.unbind() for each in per_step), strict=False))  # cells have an end
    for t in reversed(range(len(steps))):
        gates, cell, projected, masked_grad, into_xh, into_gates, into_projected = steps[t]
        kernels.output_gradient(
            masked_grad,
            h_grad[t + 1],
            projected,
            mask[t],
            mask[t + 1],
            reset_mask[t + 1],
            plan.output_clip,
            carried_grad,
            into_projected,
        )
        if saved.projection is None:
            hidden_grad = into_projected
        else:
            torch.mm(into_projected, saved.projection, out=hidden_grad)
        kernels.cell_gradient(
            gates,
            saved.bias,
            cell,
            hidden_grad,
            mask[t],
            reset_mask[t + 1],
            plan.cell_clip,
            cell_grad,
            into_gates,
        )
        torch.mm(into_gates, weight, out=into_xh)
    if first:
        inputs_grad = xh_grad[:-1, :, :first].flatten(0, 1)
        torch.mm(gates_grad.flatten(0, 1), saved.weight[:, :first], out=inputs_grad)
    start_grad = h_grad[0] + torch.where(mask[0], 0, carried_grad)
    return xh_grad, gates_grad, projected_grad, start_grad.to(output_grad.dtype), cell_grad


def _first_stepwise_column(saved: _Saved) -> int:
    """Return the first column of [x_t ; h_(t-1)] that is multiplied step by step."""
    return 0 if saved.xh.is_cuda else saved.xh.shape[2] - saved.projected.shape[2]


def pointwise_kernels(device: torch.device) -> ModuleType:
    """Return the module of element-wise kernels."""
    if runs_triton(device):
        from elmore.model.lstm import triton

        return triton
    return pointwise


def runs_triton(device: torch.device) -> bool:
    """Return whether kernels of Triton run there: on a GPU, where torch comes with it."""
    return device.type == "cuda" and find_spec("triton") is not None


def _sum_of_products(
    left: Float[Tensor, "T B X"], right: Float[Tensor, "T B Y"], dtype: torch.dtype
) -> Float[Tensor, "X Y"]:
    """Sum the products over all tokens; on a GPU in `dtype`, whatever the factors have."""
    left, right = left.flatten(0, 1).T, right.flatten(0, 1)
    if left.dtype == dtype or not left.is_cuda:
        return (left @ right).to(dtype)
    return torch.mm(left, right, out_dtype=dtype)


def _matmul_dtype(inputs: Tensor) -> torch.dtype:
    if torch.is_autocast_enabled(inputs.device.type):
        return torch.get_autocast_dtype(inputs.device.type)
    return inputs.dtype


def _cast(state: LSTMState, dtype: torch.dtype) -> LSTMState:
    """Cast the output for the matmuls; cells sum over many steps and stay in float32."""
    precise = torch.promote_types(dtype, torch.float32)
    return LSTMState(state.output.to(dtype).contiguous(), state.cell.to(precise).contiguous())


def flags_by_step(flags: Bool[Tensor, "B T"], *, at_end: bool) -> Bool[Tensor, "S B 1"]:
    """Return a mask time-major, with one more step at the end."""
    end = torch.full_like(flags[:, :1], at_end)
    return torch.cat([flags, end], dim=1).T.contiguous()[:, :, None]
