"""The projected LSTM in native code: on arrays of numpy, without gradients.

The padding mask is applied in `model/native/lstm.h`. Every row gets the same bits in any batch. The
weights are packed once: float32, or int8 rows as a file holds them, both exact; or int8 with
activations quantized at run time, for precision "fast".

Shapes: B rows, T tokens, I input width, D output width, H cell width, G = 4H gates.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Shaped

from elmore.errors import DataError
from elmore.model import native
from elmore.model.native import LSTMCall, Matrix, Weight
from elmore.model.native_threads import num_threads_for
from elmore.model.state import LSTMState

GATES = ("input", "forget", "candidate", "output")  # the order of the rows of every weight


class PackedLayer:
    """The weights of a layer as the library takes them, and a call with all that they decide."""

    def __init__(
        self,
        input: Weight,
        recurrent: Weight,
        bias: Float[np.ndarray, " G"],
        projection: Weight | None,
        *,
        dynamic: bool,
    ) -> None:
        self.input = native.pack(input, parts=len(GATES), dynamic=dynamic)
        hidden = native.pack(recurrent, parts=len(GATES), dynamic=dynamic)
        last = None if projection is None else native.pack(projection, dynamic=dynamic)
        bias = np.array(bias, np.float32)
        self._arrays = self.input, hidden, last, bias  # pointers do not keep them alive
        self.input_structure = self.input.structure
        self.call = LSTMCall(
            recurrent=hidden.structure,
            projection=Matrix() if last is None else last.structure,
            bias=native.address(bias),
            num_cells=len(bias) // len(GATES),
            width=hidden.width,
        )

    def project_inputs(self, inputs: Float[np.ndarray, "B T I"]) -> Float[np.ndarray, "B T G"]:
        """Return the gate inputs W_x x."""
        num_rows, num_steps, _ = inputs.shape
        _check_array("inputs", inputs, (num_rows, num_steps, self.input.width), np.float32)
        projected = native.multiply(self.input, inputs.reshape(-1, self.input.width))
        return projected.reshape(num_rows, num_steps, self.input.height)


class NativeStack:
    """The layers of one direction, ready to run in one native call.

    It stays valid while their weights do not change.
    """

    def __init__(
        self,
        layers: Sequence[PackedLayer],
        *,
        forget_bias: float,
        cell_clip: float | None,
        output_clip: float | None,
        skip_connections: bool = False,
    ) -> None:
        self._layers = layers
        self.project_inputs = layers[0].project_inputs
        self._calls = [LSTMCall.from_buffer_copy(layer.call) for layer in layers]
        for call in self._calls:
            call.forget_bias = forget_bias
            call.cell_clip = math.inf if cell_clip is None else cell_clip
            call.output_clip = math.inf if output_clip is None else output_clip
        for call in self._calls[1:]:
            call.skip = skip_connections

    def __call__(
        self,
        inputs: Float[np.ndarray, "B T I"],
        mask: Bool[np.ndarray, "B T"],
        states: Sequence[LSTMState],
        reset_mask: Bool[np.ndarray, "B T"] | None = None,
        reset_states: Sequence[LSTMState] | None = None,
        *,
        projected: bool = True,
    ) -> tuple[list[Float[np.ndarray, "B T D"]], list[LSTMState]]:
        """Run each row from left to right; with `projected` the inputs are gate inputs.

        Returns:
            The outputs and the state after the last token, of every layer.

        Raises:
            DataError: Shapes or types do not fit.
        """
        self._check(inputs, mask, states, reset_mask, reset_states, projected=projected)
        (num_rows, num_steps), first = mask.shape, self._calls[0]
        width, num_cells = first.width, first.num_cells
        threads = num_threads_for(num_rows * num_cells * 4 * width)
        outputs = native.empty((len(self._calls), num_steps, num_rows, width))
        ends = [
            LSTMState(native.empty((num_rows, width)), native.empty((num_rows, num_cells)))
            for _ in self._calls
        ]
        used = [inputs := _with_dense_rows(inputs)]  # kept until the call returns
        calls = (LSTMCall * len(self._calls))(*self._calls)
        for number, call in enumerate(calls):
            if number > 0 or not projected:
                call.input = self._layers[number].input_structure
            call.inputs = native.address(inputs)
            call.input_row, call.input_step, _ = _strides(inputs)
            call.mask = native.address(mask)
            call.mask_row, call.mask_step = _strides(mask)
            output, cell = map(_with_dense_rows, states[number])
            call.first_output, call.first_output_row = native.address(output), _strides(output)[0]
            call.first_cell, call.first_cell_row = native.address(cell), _strides(cell)[0]
            used += [output, cell]
            if reset_mask is not None and reset_states is not None:
                output, cell = map(_with_dense_rows, reset_states[number])
                call.reset_mask = native.address(reset_mask)
                call.reset_row, call.reset_step = _strides(reset_mask)
                call.reset_output, call.reset_output_row = (
                    native.address(output),
                    _strides(output)[0],
                )
                call.reset_cell, call.reset_cell_row = native.address(cell), _strides(cell)[0]
                used += [output, cell]
            call.output, call.cell = map(native.address, ends[number])
            call.outputs = native.address(outputs[number])
            call.num_steps, call.num_rows, call.threads = num_steps, num_rows, threads
            inputs = outputs[number].swapaxes(0, 1)
        native.run_lstm(calls)
        return [layer.swapaxes(0, 1) for layer in outputs], ends

    def _check(
        self,
        inputs: Shaped[np.ndarray, "..."],
        mask: Shaped[np.ndarray, "..."],
        states: Sequence[LSTMState],
        reset_mask: Shaped[np.ndarray, "..."] | None,
        reset_states: Sequence[LSTMState] | None,
        *,
        projected: bool,
    ) -> None:
        """Refuse what native code would misread, or read past the end of."""
        if mask.ndim != 2:
            raise DataError(f"the mask must have 2 dimensions, found {mask.ndim}")
        shape, first = tuple(mask.shape), self._layers[0].input
        width = first.height if projected else first.width
        _check_array("the mask", mask, shape, np.bool_)
        _check_array("inputs", inputs, (*shape, width), np.float32)
        self._check_states(states, len(mask), "the output state", "the cell state")
        if reset_mask is not None and reset_states is not None:
            _check_array("the reset mask", reset_mask, shape, np.bool_)
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
            _check_array(output_name, output, output_shape, np.float32)
            _check_array(cell_name, cell, cell_shape, np.float32)


def _with_dense_rows(rows: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return the array with its last dimension contiguous; the others may have any stride."""
    return rows if rows.strides[-1] == rows.itemsize else np.ascontiguousarray(rows)


def _strides(array: Shaped[np.ndarray, "..."]) -> tuple[int, ...]:
    """Return the strides in elements, as C counts them."""
    return tuple(stride // array.itemsize for stride in array.strides)


def _check_array(
    name: str, array: Shaped[np.ndarray, "..."], shape: tuple[int, ...], dtype: type
) -> None:
    """Refuse an array that native code would misread, or read past the end of."""
    if array.shape != shape:
        raise DataError(f"{name} must have the shape {shape}, found {array.shape}")
    if array.dtype != dtype:
        raise DataError(f"{name} must be {np.dtype(dtype)}, found {array.dtype}; convert it")
