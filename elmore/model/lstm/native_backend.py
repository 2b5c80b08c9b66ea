"""The native LSTM as a backend: tensors of torch share their memory with what the library takes.

Shapes: B rows, T tokens, I input width, G = 4H gates.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.model.lstm.call import Call, LSTMState, LSTMWeights, Result
from elmore.model.lstm.native import NativeStack, PackedLayer
from elmore.model.packed_weights import PackedWeights, as_weight


def pack_layer(weights: LSTMWeights, packed: PackedWeights, *, dynamic: bool) -> PackedLayer:
    """Return the packed form of weights, made where `packed` does not hold it."""

    def make() -> PackedLayer:
        projection = None if weights.projection is None else as_weight(weights.projection)
        return PackedLayer(
            as_weight(weights.input),
            as_weight(weights.recurrent),
            weights.bias.detach().numpy(),
            projection,
            dynamic=dynamic,
        )

    return packed.get(("native", dynamic), weights.tensors, make)


@torch.no_grad()
def run(call: Call, *, dynamic: bool = False) -> Result:
    """Run each row from left to right; return the outputs and the state after the last token."""
    stack = NativeStack(
        [pack_layer(call.weights, call.packed, dynamic=dynamic)],
        forget_bias=call.forget_bias,
        cell_clip=call.cell_clip,
        output_clip=call.output_clip,
    )
    reset = (None, None)
    if call.reset is not None:
        reset = (call.reset.mask.numpy(), [_as_arrays(call.reset.state)])
    inputs, mask = call.inputs.detach().numpy(), call.mask.numpy()
    outputs, ends = stack(inputs, mask, [_as_arrays(call.state)], *reset, projected=call.projected)
    return torch.from_numpy(outputs[0]), LSTMState(*map(torch.from_numpy, ends[0]))


def _as_arrays(state: LSTMState) -> LSTMState:
    return LSTMState(*(part.detach().numpy() for part in state))


def project_inputs(
    inputs: Float[Tensor, "B T I"],
    weights: LSTMWeights,
    packed: PackedWeights,
    *,
    dynamic: bool = False,
) -> Float[Tensor, "B T G"]:
    """Return the gate inputs W_x x."""
    layer = pack_layer(weights, packed, dynamic=dynamic)
    return torch.from_numpy(layer.project_inputs(inputs.detach().numpy()))
