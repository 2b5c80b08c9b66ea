"""The steps of `highway_lstm.py`, forward and backward, in torch; `highway_triton.py` fuses them.

A step is one matmul and eight element-wise kernels, its backward one matmul and four: everything
that does not depend on the next step is computed for all steps at once.

Shapes: B sentences, T tokens, S = T + 1, H hidden width, G = 5H gates and candidates in the order
o, r, i, f, j, P = 6H: those and V x.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def run_forward(
    projected: Float[Tensor, "T B P"], weight: Float[Tensor, "G H"], mask: Float[Tensor, "B H"]
) -> tuple[Float[Tensor, "T B G"], Float[Tensor, "S B H"], Float[Tensor, "S B H"]]:
    """Return the activated gates, and cells and states from those before the first step."""
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
    width = weight.shape[1]
    carried = projected[:, :, 5 * width :]
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
