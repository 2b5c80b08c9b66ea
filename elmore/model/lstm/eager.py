"""The projected LSTM where nothing is learned: each step works in the memory of the one before.

The equations are those of `reference.py`. On a CPU much of a small layer's time goes into the
element-wise work between the matmuls; here it makes no new tensors, and a tanh, three times as slow
as a sigmoid, is 2 sigmoid(2x) - 1. Outputs lie row by row, gates and cells in columns: so every
product has a weight on its left and something small on its right, which is quickest.

Shapes: B sentences, T tokens, I input width, D output width, H cell width, G = 4H gates;
I = G where inputs are driven.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from elmore.model.lstm import reference
from elmore.model.lstm.reference import LSTMState, LSTMWeights, StateReset

COLUMNS = 96  # of a product of inputs, at least: more are hardly quicker and take more memory


Step = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float | None], None]
"""The element-wise part of a step, as `step` is."""


class Parts(NamedTuple):
    """What a layer is made of, as whatever multiplies does it."""

    project_inputs: Callable[[Tensor], Tensor]
    """Inputs (B, T, I) to what they say to the gates, in columns (T, G, B)."""
    advance: Callable[[Tensor, Tensor, Tensor, Tensor], object]
    """One step: from outputs (B, D) and what the inputs say (G, B) cells (H, B) become new ones,
    and the last (H, B) what these show."""
    project: Callable[[Tensor, Tensor], object] | None
    """What cells show (H, B) into outputs (B, D); None where that is the same."""


def step(
    gates: Float[Tensor, "G B"],
    driven: Float[Tensor, "G B"],
    bias: Float[Tensor, " G"],
    cell: Float[Tensor, "H B"],
    hidden: Float[Tensor, "H B"],
    cell_clip: float | None,
) -> None:
    """Make `cell` the new one, and `hidden` what it shows; the gates are used up."""
    i, f, g, o = gates.add_(driven).add_(bias[:, None]).chunk(4)  # (H, B)
    g.mul_(2)
    gates.sigmoid_()
    cell.mul_(f).sub_(i).addcmul_(i, g, value=2)
    if cell_clip is not None:
        cell.clamp_(-cell_clip, cell_clip)
    torch.mul(cell, 2, out=hidden).sigmoid_().mul_(2).sub_(1).mul_(o)


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
    step: Step = step,
) -> tuple[Float[Tensor, "B T D"], LSTMState]:
    """Read each row from left to right; the state after its last token comes back."""
    _, recurrent, _, projection = weights
    bias = reference.bias_with_forget(weights.bias, forget_bias)
    gates = bias.new_empty(len(bias), len(inputs))

    def advance(output: Tensor, driven: Tensor, cell: Tensor, hidden: Tensor) -> None:
        torch.mm(recurrent, output.T, out=gates)
        step(gates, driven, bias, cell, hidden, cell_clip)

    def project(hidden: Float[Tensor, "H B"], output: Float[Tensor, "B D"]) -> None:
        assert projection is not None
        torch.mm(hidden.T, projection.T, out=output)

    parts = Parts(
        lambda inputs: reference.project_inputs(inputs, weights.input).permute(1, 2, 0),
        advance,
        None if projection is None else project,
    )
    return read(inputs, mask, state, parts, output_clip, resets)


@torch.no_grad()
def read(
    inputs: Float[Tensor, "B T I"],
    mask: Bool[Tensor, "B T"],
    state: LSTMState,
    parts: Parts,
    output_clip: float | None,
    resets: StateReset | None,
) -> tuple[Float[Tensor, "B T D"], LSTMState]:
    """Do so, whatever the parts are."""
    everyone_reads, someone_reads = mask.all(dim=0).tolist(), mask.any(dim=0).tolist()
    starting = _starting(resets, len(everyone_reads))
    output = state.output.contiguous()
    cell = state.cell.T.clone(memory_format=torch.contiguous_format)
    outputs = output.new_empty(len(everyone_reads), *output.shape)  # (T, B, D)
    hidden = torch.empty_like(cell)
    span, driven = max(1, COLUMNS // max(1, len(inputs))), inputs
    for number, new_output in enumerate(outputs):
        if number % span == 0:
            driven = parts.project_inputs(inputs[:, number : number + span])
        at = starting[number]
        if resets is not None and at is not None:
            output = output.clone()  # it may be what the layer shows
            output[at] = resets.state.output[at]
            cell[:, at] = resets.state.cell.T[:, at]
        if not someone_reads[number]:
            new_output.zero_()
            continue
        old_cell = None if everyone_reads[number] else cell.clone()
        parts.advance(output, driven[number % span], cell, hidden)
        if parts.project is None:
            new_output.copy_(hidden.T)
        else:
            parts.project(hidden, new_output)
            if output_clip is not None:
                new_output.clamp_(-output_clip, output_clip)
        if old_cell is None:
            output = new_output
        else:
            alive = mask[:, number]
            output = torch.where(alive[:, None], new_output, output)
            cell = torch.where(alive, cell, old_cell)
            new_output.mul_(alive[:, None])
    return outputs.transpose(0, 1), LSTMState(output.clone(), cell.T)


def _starting(resets: StateReset | None, num_steps: int) -> list[Int[Tensor, " n"] | None]:
    """Name the rows that start at each step, None for none."""
    if resets is None:
        return [None] * num_steps
    rows = [column.nonzero().flatten() for column in resets.mask.T]
    return [row if len(row) else None for row in rows]
