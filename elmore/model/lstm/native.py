"""The projected LSTM in native code: without gradients, on a CPU.

The padding mask is applied in `model/native/lstm.h`. Every row gets the same bits in any batch. The
weights are packed once: float32, or int8 rows as a file holds them, both exact; or int8 with
activations quantized at run time, for precision "fast".

Shapes: B rows, T tokens, I input width, D output width, H cell width, G = 4H gates.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from elmore.errors import DataError
from elmore.model import native
from elmore.model.config import LSTMConfig
from elmore.model.lstm.call import GATES, Call, LSTMState, LSTMWeights, Result, check_tensor
from elmore.model.native import LSTMCall, Matrix
from elmore.model.packed_weights import PackedWeights

_CPU = torch.device("cpu")


class PackedLayer:
    """The weights of a layer as the library takes them, and a call with all that they decide."""

    def __init__(self, weights: LSTMWeights, *, dynamic: bool) -> None:
        pack = native.pack_dynamic if dynamic else native.pack
        self.input = pack(weights.input, parts=len(GATES))
        recurrent = pack(weights.recurrent, parts=len(GATES))
        projection = None if weights.projection is None else pack(weights.projection)
        bias = weights.bias.detach().clone(memory_format=torch.contiguous_format)
        self._tensors = self.input, recurrent, projection, bias  # pointers do not keep them alive
        self.input_structure = self.input.structure
        self.call = LSTMCall(
            recurrent=recurrent.structure,
            projection=Matrix() if projection is None else projection.structure,
            bias=bias.data_ptr(),
            num_cells=len(bias) // len(GATES),
            width=recurrent.width,
        )

    @classmethod
    def cached(cls, weights: LSTMWeights, packed: PackedWeights, *, dynamic: bool) -> "PackedLayer":
        """Return the packed form of weights, made where `packed` does not hold it."""
        make = partial(cls, weights, dynamic=dynamic)
        return packed.get(("native", dynamic), weights.tensors, make)

    def project_inputs(self, inputs: Float[Tensor, "B T I"]) -> Float[Tensor, "B T G"]:
        """Return the gate inputs W_x x."""
        shape = (*inputs.shape[:2], self.input.width)
        _check_tensor("inputs", inputs, shape, torch.float32)
        return native.multiply(self.input, inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])


class NativeStack:
    """The layers of one direction, ready to run in one native call.

    It stays valid while their weights do not change.
    """

    def __init__(
        self,
        layers: Sequence[PackedLayer],
        settings: LSTMConfig | Call,
        *,
        skip_connections: bool = False,
    ) -> None:
        self._layers = layers
        self.project_inputs = layers[0].project_inputs
        self._calls = [LSTMCall.from_buffer_copy(layer.call) for layer in layers]
        for call in self._calls:
            call.forget_bias = settings.forget_bias
            call.cell_clip = math.inf if settings.cell_clip is None else settings.cell_clip
            call.output_clip = math.inf if settings.output_clip is None else settings.output_clip
        for call in self._calls[1:]:
            call.skip = skip_connections

    @torch.no_grad()
    def __call__(
        self,
        inputs: Float[Tensor, "B T I"],
        mask: Bool[Tensor, "B T"],
        states: Sequence[LSTMState],
        reset_mask: Bool[Tensor, "B T"] | None = None,
        reset_states: Sequence[LSTMState] | None = None,
        *,
        projected: bool = True,
    ) -> tuple[list[Float[Tensor, "B T D"]], list[LSTMState]]:
        """Run each row from left to right; with `projected` the inputs are gate inputs.

        Returns:
            The outputs and the state after the last token, of every layer.

        Raises:
            DataError: Shapes, types or devices do not fit.
        """
        self._check(inputs, mask, states, reset_mask, reset_states, projected=projected)
        (num_rows, num_steps), first = mask.shape, self._calls[0]
        width, num_cells = first.width, first.num_cells
        threads = native.num_threads_for(num_rows * num_cells * 4 * width)
        outputs = inputs.new_empty(len(self._calls), num_steps, num_rows, width)
        ends = [
            LSTMState(inputs.new_empty(num_rows, width), inputs.new_empty(num_rows, num_cells))
            for _ in self._calls
        ]
        used = [inputs := _with_dense_rows(inputs)]  # kept until the call returns
        calls = (LSTMCall * len(self._calls))(*self._calls)
        for number, call in enumerate(calls):
            if number > 0 or not projected:
                call.input = self._layers[number].input_structure
            call.inputs = inputs.data_ptr()
            call.input_row, call.input_step, _ = inputs.stride()
            call.mask = mask.data_ptr()
            call.mask_row, call.mask_step = mask.stride()
            output, cell = map(_with_dense_rows, states[number])
            call.first_output, call.first_output_row = output.data_ptr(), output.stride(0)
            call.first_cell, call.first_cell_row = cell.data_ptr(), cell.stride(0)
            used += [output, cell]
            if reset_mask is not None and reset_states is not None:
                output, cell = map(_with_dense_rows, reset_states[number])
                call.reset_mask = reset_mask.data_ptr()
                call.reset_row, call.reset_step = reset_mask.stride()
                call.reset_output, call.reset_output_row = output.data_ptr(), output.stride(0)
                call.reset_cell, call.reset_cell_row = cell.data_ptr(), cell.stride(0)
                used += [output, cell]
            call.output, call.cell = (part.data_ptr() for part in ends[number])
            call.outputs = outputs[number].data_ptr()
            call.num_steps, call.num_rows, call.threads = num_steps, num_rows, threads
            inputs = outputs[number].transpose(0, 1)
        native.run_lstm(calls)
        return [layer.transpose(0, 1) for layer in outputs], ends

    def _check(
        self,
        inputs: Tensor,
        mask: Tensor,
        states: Sequence[LSTMState],
        reset_mask: Tensor | None,
        reset_states: Sequence[LSTMState] | None,
        *,
        projected: bool,
    ) -> None:
        """Refuse what native code would misread, or read past the end of."""
        if mask.dim() != 2:
            raise DataError(f"the mask must have 2 dimensions, found {mask.dim()}")
        shape, first = tuple(mask.shape), self._layers[0].input
        width = first.height if projected else first.width
        _check_tensor("the mask", mask, shape, torch.bool)
        _check_tensor("inputs", inputs, (*shape, width), torch.float32)
        self._check_states(states, len(mask), "the output state", "the cell state")
        if reset_mask is not None and reset_states is not None:
            _check_tensor("the reset mask", reset_mask, shape, torch.bool)
            names = "the output to reset to", "the cell to reset to"
            self._check_states(reset_states, len(mask), *names)

    def _check_states(
        self, states: Sequence[LSTMState], num_rows: int, output_name: str, cell_name: str
    ) -> None:
        call = self._calls[0]
        output_shape, cell_shape = (num_rows, call.width), (num_rows, call.num_cells)
        if len(states) != len(self._calls):
            raise DataError(
                f"a state for each of {len(self._calls)} layers is expected, found {len(states)}"
            )
        for output, cell in states:
            _check_tensor(output_name, output, output_shape, torch.float32)
            _check_tensor(cell_name, cell, cell_shape, torch.float32)


@torch.no_grad()
def run(call: Call, *, dynamic: bool = False) -> Result:
    """Run each row from left to right; return the outputs and the state after the last token."""
    layer = PackedLayer.cached(call.weights, call.packed, dynamic=dynamic)
    stack = NativeStack([layer], call)
    reset = (None, None) if call.reset is None else (call.reset.mask, [call.reset.state])
    outputs, ends = stack(call.inputs, call.mask, [call.state], *reset, projected=call.projected)
    return outputs[0], ends[0]


def project_inputs(
    inputs: Float[Tensor, "B T I"],
    weights: LSTMWeights,
    packed: PackedWeights,
    *,
    dynamic: bool = False,
) -> Float[Tensor, "B T G"]:
    """Return the gate inputs W_x x."""
    return PackedLayer.cached(weights, packed, dynamic=dynamic).project_inputs(inputs)


def _with_dense_rows(rows: Tensor) -> Tensor:
    """Return the tensor with its last dimension contiguous; the others may have any stride."""
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_cpu:  # the quickest check
        check_tensor(name, tensor, shape, dtype, _CPU)
