"""The projected LSTM in native code: without gradients, on a CPU.

The padding mask is applied in `model/native/lstm.h`. Every row gets the same bits in any batch. The
weights are packed once: float32, or int8 rows as a file holds them, both exact; or int8 with
activations quantized at run time, for precision "fast".

Shapes: B rows, T tokens, I input width, D output width, H cell width, G = 4H gates.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.model import native
from elmore.model.lstm.call import GATES, Call, LSTMState, LSTMWeights, Result, bias_with_forget
from elmore.model.native import LSTMCall, Matrix, PackedMatrix, address
from elmore.model.packed_weights import PackedWeights
from elmore.model.quantize import Int8Rows

_CHUNK_ROWS = 96  # inputs multiplied together: the input weight is read from memory once for them
_MIN_CHUNK = 3  # steps: fewer are multiplied with the state, and their gate inputs never stored


def project_inputs(
    inputs: Float[Tensor, "B T I"],
    weights: LSTMWeights,
    packed: PackedWeights,
    *,
    dynamic: bool = False,
) -> Float[Tensor, "B T G"]:
    """Return the gate inputs W_x x."""
    weight = _pack(weights, "input", packed, dynamic=dynamic)
    assert weight is not None
    return native.multiply(weight, inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])


@torch.no_grad()
def run(call: Call, *, dynamic: bool = False) -> Result:
    """Run each row from left to right; return the outputs and the state after the last token."""
    (num_rows, num_steps), weights = call.mask.shape, call.weights
    names = ("recurrent", "projection") if call.projected else ("input", "recurrent", "projection")
    matrices = {name: _pack(weights, name, call.packed, dynamic=dynamic) for name in names}
    bias = call.packed.get(
        ("bias", call.forget_bias),
        [weights.bias],
        lambda: bias_with_forget(weights.bias, call.forget_bias).contiguous(),
    )
    output, cell = (part.clone(memory_format=torch.contiguous_format) for part in call.state)
    width, num_cells = output.shape[1], cell.shape[1]
    inputs, strides, chunk = call.inputs, (0, 0), 1
    gate_inputs = None
    if call.projected:
        inputs = inputs if inputs.stride(2) == 1 else inputs.contiguous()
        strides = inputs.stride(1), inputs.stride(0)
    else:
        inputs = inputs.transpose(0, 1).contiguous()
        chunk = min(num_steps, _CHUNK_ROWS // max(1, num_rows))
        chunk = chunk if chunk >= _MIN_CHUNK else 1
        if chunk > 1:
            gate_inputs = output.new_empty(chunk * num_rows, 4 * num_cells)
    outputs, hidden = output.new_empty(num_steps, num_rows, width), torch.zeros_like(cell)
    widest = max(num_cells, inputs.shape[2])
    scratch, scales = native.working_memory(output, chunk * num_rows, widest)
    state_scratch, state_scales = native.working_memory(output, num_rows, width)
    masks = [call.mask.T.contiguous(), None, None, None]
    if call.reset is not None:
        masks[1] = call.reset.mask.T.contiguous()
        masks[2:] = [part.contiguous() for part in call.reset.state]
    native.run_lstm(
        LSTMCall(
            *(_structure(matrices.get(name)) for name in ("input", "recurrent", "projection")),
            *map(address, (bias, inputs)),
            *strides,
            *map(address, masks),
            *map(address, (output, cell, outputs, hidden)),
            *map(address, (gate_inputs, scratch, state_scratch, scales, state_scales)),
            *(num_steps, num_rows, num_cells, width, chunk),
            native.num_threads_for(num_rows * num_cells * 4 * width),
            *(math.inf if clip is None else clip for clip in (call.cell_clip, call.output_clip)),
        )
    )
    return outputs.transpose(0, 1), LSTMState(output, cell)


def _structure(packed: PackedMatrix | None) -> Matrix:
    return Matrix() if packed is None else packed.structure


def _pack(
    weights: LSTMWeights, name: str, packed: PackedWeights, *, dynamic: bool
) -> PackedMatrix | None:
    weight, parts = getattr(weights, name), 1 if name == "projection" else len(GATES)
    if weight is None:
        return None
    tensors = [*weight.buffers()] if isinstance(weight, Int8Rows) else [weight]
    pack = native.pack_dynamic if dynamic else native.pack
    return packed.get((name, dynamic), tensors, lambda: pack(weight, parts=parts))
