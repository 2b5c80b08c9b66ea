"""`highway_steps.py` for a GPU: what follows the matmul of a step is one kernel.

The host is what a step waits for on a GPU, so a kernel is given whole tensors and the number of the
step instead of views, and computes the derivatives itself, which `highway_steps.py` does for all
steps at once. A program computes a block of one row, in float32 at least. One program writes each
element, so results are reproducible. All tensors but the weight and the gradient of the states must
be contiguous.

Shapes: B sentences, T tokens, S = T + 1, H hidden width, G = 5H gates and candidates in the order
o, r, i, f, j, P = 6H: those and V x.
"""

# ruff: noqa: ANN001, ANN202 -- a kernel takes pointers, which have no Python type

from __future__ import annotations

from contextlib import suppress
from typing import no_type_check

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.model.lstm.triton import jit, row_and_columns, tanh

with suppress(ModuleNotFoundError):  # without it nothing here is called
    import triton.language as tl

BLOCK = 128  # rows are few, so that wider blocks would leave most of a GPU idle


def run_forward(
    projected: Float[Tensor, "T B P"], weight: Float[Tensor, "G H"], mask: Float[Tensor, "B H"]
) -> tuple[Float[Tensor, "T B G"], Float[Tensor, "S B H"], Float[Tensor, "S B H"]]:
    """Return the activated gates, and cells and states from those before the first step."""
    (rows, width), to_gates = mask.shape, weight.T
    gates = projected.new_empty(*projected.shape[:2], 5 * width)
    states = mask.new_zeros(len(projected) + 1, *mask.shape)
    cells = torch.zeros_like(states)
    finish_step = _finish_step[rows, -(-width // BLOCK)]
    products = zip(states[:-1].unbind(), gates.unbind(), strict=True)
    for step, (state, product) in enumerate(products):
        torch.mm(state, to_gates, out=product)
        finish_step(projected, gates, cells, states, mask, step, width, BLOCK)
    return gates, cells, states


def run_backward(
    states_grad: Float[Tensor, "T B H"],
    gates: Float[Tensor, "T B G"],
    cells: Float[Tensor, "S B H"],
    projected: Float[Tensor, "T B P"],
    weight: Float[Tensor, "G H"],
    mask: Float[Tensor, "B H"],
) -> Float[Tensor, "T B P"]:
    """Return the gradient of the projected inputs, those of gates and bypass."""
    rows, width = mask.shape
    states_grad = states_grad.contiguous()
    projected_grad = torch.empty_like(projected)
    state_grad, cell_grad = torch.zeros_like(mask), torch.zeros_like(mask)  # by the next step
    gates_grads = projected_grad[:, :, : 5 * width].unbind()
    differentiate_step = _differentiate_step[rows, -(-width // BLOCK)]
    for step in reversed(range(len(gates_grads))):
        differentiate_step(
            states_grad,
            state_grad,
            gates,
            cells,
            projected,
            mask,
            cell_grad,
            projected_grad,
            step,
            width,
            BLOCK,
        )
        if step:
            torch.mm(gates_grads[step], weight, out=state_grad)
    return projected_grad


@jit(do_not_specialize=["step"])  # else it is compiled once more for step 1, and for 0, 16, 32, ...
@no_type_check
def _finish_step(projected, gates, cells, states, mask, step, width, block: tl.constexpr):
    row, columns, inside = row_and_columns(width, block)
    this = step * tl.num_programs(0) + row  # of all rows of all steps
    here = this * width + columns
    there = here + tl.num_programs(0) * width  # at the next step
    projected += this * 6 * width + columns
    gates += this * 5 * width + columns
    o = tl.sigmoid(_load(gates, inside) + _load(projected, inside))
    r = tl.sigmoid(_load(gates + width, inside) + _load(projected + width, inside))
    i = tl.sigmoid(_load(gates + 2 * width, inside) + _load(projected + 2 * width, inside))
    f = tl.sigmoid(_load(gates + 3 * width, inside) + _load(projected + 3 * width, inside))
    j = tanh(_load(gates + 4 * width, inside) + _load(projected + 4 * width, inside))
    tl.store(gates, o, inside)
    tl.store(gates + width, r, inside)
    tl.store(gates + 2 * width, i, inside)
    tl.store(gates + 3 * width, f, inside)
    tl.store(gates + 4 * width, j, inside)
    cell = f * _load(cells + here, inside) + i * j
    tl.store(cells + there, cell, inside)
    state = r * o * tanh(cell) + (1 - r) * _load(projected + 5 * width, inside)
    dropout = _load(mask + row * width + columns, inside)
    tl.store(states + there, dropout * state, inside)


@jit(do_not_specialize=["step"])
@no_type_check
def _differentiate_step(
    states_grad,
    state_grad,
    gates,
    cells,
    projected,
    mask,
    cell_grad,
    projected_grad,
    step,
    width,
    block: tl.constexpr,
):
    row, columns, inside = row_and_columns(width, block)
    this = step * tl.num_programs(0) + row
    here = this * width + columns
    in_row = row * width + columns
    gates += this * 5 * width + columns
    bypass = _load(projected + this * 6 * width + 5 * width + columns, inside)
    projected_grad += this * 6 * width + columns
    o, r = _load(gates, inside), _load(gates + width, inside)
    i, f = _load(gates + 2 * width, inside), _load(gates + 3 * width, inside)
    j = _load(gates + 4 * width, inside)
    before = _load(cells + here, inside)
    squashed = tanh(_load(cells + here + tl.num_programs(0) * width, inside))
    grad = _load(states_grad + here, inside) + _load(state_grad + in_row, inside)
    grad *= _load(mask + in_row, inside)
    by_cell = _load(cell_grad + in_row, inside) + grad * r * o * (1 - squashed * squashed)
    tl.store(cell_grad + in_row, by_cell * f, inside)
    tl.store(projected_grad, grad * r * squashed * o * (1 - o), inside)
    tl.store(projected_grad + width, grad * (o * squashed - bypass) * r * (1 - r), inside)
    tl.store(projected_grad + 2 * width, by_cell * j * i * (1 - i), inside)
    tl.store(projected_grad + 3 * width, by_cell * before * f * (1 - f), inside)
    tl.store(projected_grad + 4 * width, by_cell * i * (1 - j * j), inside)
    tl.store(projected_grad + 5 * width, grad * (1 - r), inside)


@jit
@no_type_check
def _load(pointers, inside):
    values = tl.load(pointers, inside)
    if values.dtype.primitive_bitwidth < 32:
        values = values.to(tl.float32)
    return values
