"""`pointwise.py` for a GPU: each function is one kernel.

A program computes a block of one row, in the precision of the cell. One program writes each
element, so results are reproducible.
"""

# ruff: noqa: ANN001, ANN201, ANN202 -- a kernel takes pointers, which have no Python type

from __future__ import annotations

from typing import Any, no_type_check

from jaxtyping import Bool, Float
from torch import Tensor

try:
    import triton.language as tl  # pyrefly: ignore[missing-import]
    from triton import jit  # pyrefly: ignore[missing-import]
except ModuleNotFoundError:  # it comes with torch for GPUs; without it nothing here is called

    def jit(kernel: Any = None, **_: Any) -> Any:  # noqa: ANN401
        """Return the kernel unchanged, or with options alone what does so."""
        return kernel or jit


BLOCK = 512


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
    """Update the cell from the gates, to which their inputs and their bias are added."""
    rows, width = cell.shape
    has_inputs = gate_inputs is not None
    if gate_inputs is None:
        gate_inputs = gates  # any pointer: it is not read
    elif gate_inputs.stride(1) != 1:
        gate_inputs = gate_inputs.contiguous()
    _cell_step[rows, -(-width // BLOCK)](
        gates,
        gate_inputs,
        bias,
        cell,
        mask,
        reset_mask,
        reset_to,
        hidden,
        next_cell,
        gate_inputs.stride(0),
        width,
        has_inputs,
        clip,
        BLOCK,
    )


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
    rows, width = projected.shape
    _output_step[rows, -(-width // BLOCK)](
        projected,
        output,
        mask,
        reset_mask,
        reset_to,
        masked,
        next_output,
        output.stride(0),
        width,
        clip,
        BLOCK,
    )


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
    """Compute the gradient of `output_step`."""
    rows, width = projected.shape
    _output_gradient[rows, -(-width // BLOCK)](
        masked_grad,
        next_grad,
        projected,
        mask,
        next_mask,
        reset_mask,
        carried_grad,
        projected_grad,
        next_grad.stride(0),
        width,
        clip,
        BLOCK,
    )


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
    rows, width = cell.shape
    _cell_gradient[rows, -(-width // BLOCK)](
        gates, bias, cell, hidden_grad, mask, reset_mask, cell_grad, gates_grad, width, clip, BLOCK
    )


@jit
@no_type_check
def _cell_step(
    gates,
    gate_inputs,
    bias,
    cell,
    mask,
    reset_mask,
    reset_to,
    hidden,
    next_cell,
    input_stride,
    width,
    has_inputs: tl.constexpr,
    clip: tl.constexpr,
    block: tl.constexpr,
):
    row, columns, inside = row_and_columns(width, block)
    here = row * width + columns
    before = tl.load(cell + here, inside)
    gates += row * 4 * width + columns
    gate_inputs += row * input_stride + columns
    i, f, g, o = _activate(
        gates, gate_inputs, bias + columns, inside, width, has_inputs, before.dtype
    )
    new = _clamp(f * before + i * g, clip)
    tl.store(hidden + here, o * tanh(new), inside)
    next_value = tl.where(tl.load(mask + row), new, before)
    if tl.load(reset_mask + row):
        next_value = tl.load(reset_to + here, inside)
    tl.store(next_cell + here, next_value, inside)


@jit
@no_type_check
def _output_step(
    projected,
    output,
    mask,
    reset_mask,
    reset_to,
    masked,
    next_output,
    stride,
    width,
    clip: tl.constexpr,
    block: tl.constexpr,
):
    row, columns, inside = row_and_columns(width, block)
    here = row * width + columns
    new = _clamp(tl.load(projected + here, inside), clip)
    is_token = tl.load(mask + row)
    tl.store(masked + here, tl.where(is_token, new, 0), inside)
    there = row * stride + columns  # beside the inputs, in a wider row
    next_value = tl.where(is_token, new, tl.load(output + there, inside))
    if tl.load(reset_mask + row):
        next_value = tl.load(reset_to + here, inside)
    tl.store(next_output + there, next_value, inside)


@jit
@no_type_check
def _output_gradient(
    masked_grad,
    next_grad,
    projected,
    mask,
    next_mask,
    reset_mask,
    carried_grad,
    projected_grad,
    stride,
    width,
    clip: tl.constexpr,
    block: tl.constexpr,
):
    row, columns, inside = row_and_columns(width, block)
    here = row * width + columns
    bypassed = tl.load(carried_grad + here, inside)
    returned = tl.load(next_grad + row * stride + columns, inside).to(bypassed.dtype)
    returned += tl.where(tl.load(next_mask + row), 0, bypassed)
    returned = tl.where(tl.load(reset_mask + row), 0, returned)
    tl.store(carried_grad + here, returned, inside)
    grad = tl.load(masked_grad + here, inside).to(bypassed.dtype) + returned
    if clip is not None:
        grad = tl.where(_within(tl.load(projected + here, inside), clip), grad, 0)
    tl.store(projected_grad + here, tl.where(tl.load(mask + row), grad, 0), inside)


@jit
@no_type_check
def _cell_gradient(
    gates,
    bias,
    cell,
    hidden_grad,
    mask,
    reset_mask,
    cell_grad,
    gates_grad,
    width,
    clip: tl.constexpr,
    block: tl.constexpr,
):
    row, columns, inside = row_and_columns(width, block)
    here = row * width + columns
    before = tl.load(cell + here, inside)
    gates += row * 4 * width + columns
    i, f, g, o = _activate(gates, gates, bias + columns, inside, width, False, before.dtype)
    new = f * before + i * g
    squashed = tanh(_clamp(new, clip))
    is_token = tl.load(mask + row)
    next_grad = tl.where(tl.load(reset_mask + row), 0, tl.load(cell_grad + here, inside))
    from_hidden = tl.load(hidden_grad + here, inside).to(before.dtype)
    grad = tl.where(is_token, next_grad + from_hidden * o * (1 - squashed * squashed), 0)
    if clip is not None:
        grad = tl.where(_within(new, clip), grad, 0)
    gate = gates_grad + row * 4 * width + columns
    tl.store(gate, grad * g * i * (1 - i), inside)
    tl.store(gate + width, grad * before * f * (1 - f), inside)
    tl.store(gate + 2 * width, grad * i * (1 - g * g), inside)
    tl.store(gate + 3 * width, from_hidden * squashed * o * (1 - o), inside)
    tl.store(cell_grad + here, tl.where(is_token, grad * f, next_grad), inside)


@jit
@no_type_check
def row_and_columns(width, block: tl.constexpr):
    """Return the row of this program, its columns, and which of them exist."""
    columns = tl.program_id(1) * block + tl.arange(0, block)
    return tl.program_id(0).to(tl.int64), columns, columns < width


@jit
@no_type_check
def _activate(
    gates, gate_inputs, bias, inside, width, has_inputs: tl.constexpr, dtype: tl.constexpr
):
    i = _sum_gate(gates, gate_inputs, bias, inside, 0, has_inputs, dtype)
    f = _sum_gate(gates, gate_inputs, bias, inside, width, has_inputs, dtype)
    g = _sum_gate(gates, gate_inputs, bias, inside, 2 * width, has_inputs, dtype)
    o = _sum_gate(gates, gate_inputs, bias, inside, 3 * width, has_inputs, dtype)
    return tl.sigmoid(i), tl.sigmoid(f), tanh(g), tl.sigmoid(o)


@jit
@no_type_check
def _sum_gate(
    gates, gate_inputs, bias, inside, offset, has_inputs: tl.constexpr, dtype: tl.constexpr
):
    total = tl.load(gates + offset, inside).to(dtype)
    if has_inputs:
        total += tl.load(gate_inputs + offset, inside).to(dtype)
    return total + tl.load(bias + offset, inside)


@jit
@no_type_check
def tanh(values):
    """Return the hyperbolic tangent, which Triton's language lacks."""
    return 2 * tl.sigmoid(2 * values) - 1


@jit
@no_type_check
def _clamp(values, clip: tl.constexpr):
    if clip is not None:  # comparisons, since minimum and maximum would lose a NaN
        values = tl.where(values > clip, clip, tl.where(values < -clip, -clip, values))
    return values


@jit
@no_type_check
def _within(values, clip: tl.constexpr):
    return (values >= -clip) & (values <= clip)
