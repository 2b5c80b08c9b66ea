"""The projected LSTM with both clips, step by step: the definition every faster kernel must equal.

    i, f, g, o = W_x x_t + W_h h_(t-1) + b          f also gets forget_bias
    c_t = clip(sigmoid(f) * c_(t-1) + sigmoid(i) * tanh(g), cell_clip)
    h_t = clip(W_p (sigmoid(o) * tanh(c_t)), output_clip)

Where a row's sentence is over, the output is zero and the state stays what it was. A row may read
several sentences one after another: where one starts, the state is set anew.

Inputs may come driven: as what they say to the gates, W_x x_t.

Shapes: B sentences, T tokens, I input width, D output width, H cell width, G = 4H gates;
I = G where inputs are driven.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

GATES = ("input", "forget", "candidate", "output")  # the order of the rows of every weight


class LSTMWeights(NamedTuple):
    """Rows are the gates, in the order of `GATES`, H each."""

    input: Float[Tensor, "4*H I"] | None
    """None where the inputs are driven already."""
    recurrent: Float[Tensor, "4*H D"]
    bias: Float[Tensor, " 4*H"]
    projection: Float[Tensor, "D H"] | None


class LSTMState(NamedTuple):
    """What one layer of one direction remembers."""

    output: Float[Tensor, "B D"]
    cell: Float[Tensor, "B H"]

    def float(self) -> "LSTMState":
        """Return the state in float32."""
        return LSTMState(self.output.float(), self.cell.float())


class StateReset(NamedTuple):
    """Where the state is reset before a step, and to what."""

    mask: Bool[Tensor, "B T"]
    state: LSTMState

    def float(self) -> "StateReset":
        """Return the resets with a state in float32."""
        return self._replace(state=self.state.float())


def bias_with_forget(bias: Float[Tensor, " G"], forget_bias: float) -> Float[Tensor, " G"]:
    """Give the bias of the gates, the one that keeps the forget gate open with it."""
    parts = zip(GATES, bias.chunk(4), strict=True)
    return torch.cat([part + forget_bias if gate == "forget" else part for gate, part in parts])


def project_inputs(
    inputs: Float[Tensor, "B T I"], weight: Float[Tensor, "G I"] | None
) -> Float[Tensor, "B T G"]:
    """Give what the inputs alone say to the gates; without a weight they have said it already."""
    if weight is None:
        return inputs
    # Columns are sentences, as in the equations: W x is quicker than x W' for few of them.
    columns = inputs.transpose(0, 1).flatten(0, 1).T
    driven = weight @ columns  # (G, T * B)
    return driven.unflatten(1, (inputs.shape[1], len(inputs))).permute(2, 1, 0)


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
    everyone_reads = mask.all(dim=0).tolist()  # then there is nothing to freeze: the usual step
    someone_starts = (
        [False] * len(everyone_reads) if resets is None else resets.mask.any(0).tolist()
    )
    bias = bias_with_forget(weights.bias, forget_bias)
    gate_inputs = project_inputs(inputs, weights.input).permute(2, 1, 0) + bias[:, None, None]
    output, cell = state.output.T, state.cell.T
    outputs = []
    for step in range(inputs.shape[1]):
        if resets is not None and someone_starts[step]:
            fresh = resets.mask[:, step]
            output = torch.where(fresh, resets.state.output.T, output)
            cell = torch.where(fresh, resets.state.cell.T, cell)
        i, f, g, o = torch.addmm(gate_inputs[:, step], weights.recurrent, output).chunk(4)  # (H, B)
        new_cell = torch.addcmul(torch.sigmoid(f) * cell, torch.sigmoid(i), torch.tanh(g))
        if cell_clip is not None:
            new_cell = new_cell.clamp(-cell_clip, cell_clip)
        new_output = torch.sigmoid(o) * torch.tanh(new_cell)
        if weights.projection is not None:
            new_output = weights.projection @ new_output
            if output_clip is not None:
                new_output = new_output.clamp(-output_clip, output_clip)
        if everyone_reads[step]:
            output, cell = new_output, new_cell
            outputs.append(output)
        else:
            alive = mask[:, step]
            output = torch.where(alive, new_output, output)
            cell = torch.where(alive, new_cell, cell)
            outputs.append(new_output * alive)
    return torch.stack(outputs, dim=1).permute(2, 1, 0), LSTMState(output.T, cell.T)
