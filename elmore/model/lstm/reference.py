"""The projected LSTM with both clips, step by step: the definition every faster backend must equal.

    i, f, g, o = W_x x_t + W_h h_(t-1) + b          f also gets forget_bias
    c_t = clip(sigmoid(f) * c_(t-1) + sigmoid(i) * tanh(g), cell_clip)
    h_t = clip(W_p (sigmoid(o) * tanh(c_t)), output_clip)

Where the mask is false the output is zero and the state is kept. Where the reset mask is true the
state is replaced by the reset state before the step, so a row may hold several sentences.

Shapes: B rows, T tokens, I input width, D output width, H cell width, G = 4H gates;
I = G where the inputs are gate inputs, W_x x_t.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.model.lstm.call import Call, DenseWeights, LSTMState, Result, bias_with_forget


def project_inputs(inputs: Float[Tensor, "B T I"], weights: DenseWeights) -> Float[Tensor, "B T G"]:
    """Return the gate inputs W_x x."""
    # Columns are rows of the batch: W x is faster than x W' for few of them.
    columns = inputs.transpose(0, 1).flatten(0, 1).T
    gate_inputs = weights.input @ columns  # (G, T * B)
    return gate_inputs.unflatten(1, (inputs.shape[1], len(inputs))).permute(2, 1, 0)


def run(call: Call) -> Result:
    """Run each row from left to right; return the outputs and the state after the last token."""
    inputs, mask, reset, weights = call.inputs, call.mask, call.reset, call.weights.dense()
    cell_clip, output_clip = call.cell_clip, call.output_clip
    everywhere = mask.all(dim=0).tolist()  # steps without padding: the usual case
    resets = [False] * len(everywhere) if reset is None else reset.mask.any(dim=0).tolist()
    gate_inputs = inputs if call.projected else project_inputs(inputs, weights)
    bias = bias_with_forget(weights.bias, call.forget_bias)
    gate_inputs = gate_inputs.permute(2, 1, 0) + bias[:, None, None]  # (G, T, B)
    output, cell = call.state.output.T, call.state.cell.T
    outputs = []
    for step in range(inputs.shape[1]):
        if reset is not None and resets[step]:
            at = reset.mask[:, step]
            output = torch.where(at, reset.state.output.T, output)
            cell = torch.where(at, reset.state.cell.T, cell)
        i, f, g, o = torch.addmm(gate_inputs[:, step], weights.recurrent, output).chunk(4)  # (H, B)
        new_cell = torch.addcmul(torch.sigmoid(f) * cell, torch.sigmoid(i), torch.tanh(g))
        if cell_clip is not None:
            new_cell = new_cell.clamp(-cell_clip, cell_clip)
        new_output = torch.sigmoid(o) * torch.tanh(new_cell)
        if weights.projection is not None:
            new_output = weights.projection @ new_output
            if output_clip is not None:
                new_output = new_output.clamp(-output_clip, output_clip)
        if everywhere[step]:
            output, cell = new_output, new_cell
            outputs.append(output)
        else:
            active = mask[:, step]
            output = torch.where(active, new_output, output)
            cell = torch.where(active, new_cell, cell)
            outputs.append(new_output * active)
    return torch.stack(outputs, dim=1).permute(2, 1, 0), LSTMState(output.T, cell.T)
