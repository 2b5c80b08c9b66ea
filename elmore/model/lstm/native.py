"""The projected LSTM in native code: on arrays of numpy, without gradients.

The padding mask is applied in `model/native/lstm.h`. Every row gets the same bits in any batch. The
weights are packed once: float32, or int8 rows as a file holds them, both exact; or int8 with
activations quantized at run time, for precision "fast": inputs and states to 8 bits, hidden values
to 16.

Shapes: B rows, T tokens, I input width, D output width, H cell width, G = 4H gates.
"""

import ctypes
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from elmore.errors import DataError
from elmore.model import native
from elmore.model.native import LSTMCall, Matrix, Weight
from elmore.model.native_threads import num_threads_for
from elmore.model.state import LSTMState

GATES = ("input", "forget", "candidate", "output")  # the order of the rows of every weight


class PackedLayer:
    """The packed weights of a layer, and an `LSTMCall` filled in with them and their sizes."""

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
        packed_recurrent = native.pack(recurrent, parts=len(GATES), dynamic=dynamic)
        packed_projection = None
        if projection is not None:
            # A hidden value is often far from most others of its row, which 8 bits would round off.
            packed_projection = native.pack(projection, dynamic=dynamic, activation_bits=16)
        bias = np.array(bias, np.float32)
        # the call holds pointers, which do not keep arrays alive
        self._keep_alive = packed_recurrent, packed_projection, bias
        self.input_structure = self.input.structure
        self.call = LSTMCall(
            recurrent=packed_recurrent.structure,
            projection=Matrix() if packed_projection is None else packed_projection.structure,
            bias=native.address(bias),
            num_cells=len(bias) // len(GATES),
            width=packed_recurrent.width,
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
        self._check_inputs(inputs, mask, projected=projected)
        self._check_call(mask, states, reset_mask, reset_states)
        num_rows, num_steps = mask.shape
        outputs = native.empty((len(self._calls), num_steps, num_rows, self._calls[0].width))
        calls, ends, _keep_alive = self._make_calls(mask, states, reset_mask, reset_states)
        if not projected:
            calls[0].input = self._layers[0].input_structure
        before = inputs = _with_dense_rows(inputs)
        for call, output in zip(calls, outputs, strict=True):
            call.inputs = native.address(before)
            call.input_row, call.input_step, _ = _strides(before)
            call.outputs, call.output_row = native.address(output), call.width
            before = output.swapaxes(0, 1)
        native.run_lstm(calls)
        return [layer.swapaxes(0, 1) for layer in outputs], ends

    def run_packed(
        self,
        table: Float[np.ndarray, "N X"],
        rows: Int[np.ndarray, "T B"],
        positions: Int[np.ndarray, "T B"],
        states: Sequence[LSTMState],
        reset_mask: Bool[np.ndarray, "B T"],
        reset_states: Sequence[LSTMState],
        out: Float[np.ndarray, "L P D"],
        *,
        projected: bool = True,
    ) -> list[LSTMState]:
        """Run packed rows: gather inputs from a table, scatter outputs to their positions.

        Args:
            table: Gate inputs; the inputs themselves if they are not projected.
            rows: The row of the table that each row of the batch reads at each step.
            positions: Where in `out` the output of each step and row goes, each to a place of its
                own; a row with a negative position is idle.
            states: State of each layer before the first step.
            reset_mask: True where the state is replaced before the step.
            reset_states: State of each layer to replace it by.
            out: Outputs of each layer, of which the others stay as they are.
            projected: Whether the table has gate inputs. The bits of the outputs are the same.

        Returns:
            The state of every layer after the last step.

        Raises:
            DataError: Shapes, types or indices do not fit.
        """
        if rows.ndim != 2 or out.ndim != 3:
            found = f"found {rows.ndim} and {out.ndim}"
            raise DataError(f"the rows must have 2 dimensions and the output 3, {found}")
        shape, (length, width) = rows.shape, (out.shape[1], self._calls[0].width)
        first = self._layers[0].input
        columns = first.height if projected else first.width
        _check_array("the table", table, (len(table), columns), np.float32)
        _check_array("the output", out, (len(self._calls), length, width), np.float32)
        _check_index("the rows", rows, shape, 0, len(table))
        _check_index("the positions", positions, shape, -1, length)
        mask = (positions >= 0).T
        self._check_call(mask, states, reset_mask, reset_states)
        assert out.strides[-1] == out.itemsize, "outputs are written row by row"
        table = _with_dense_rows(table)
        rows, positions = np.ascontiguousarray(rows), np.ascontiguousarray(positions)
        calls, ends, _keep_alive = self._make_calls(mask, states, reset_mask, reset_states)
        if not projected:
            calls[0].input = self._layers[0].input_structure
        before, index = table, rows
        for call, output in zip(calls, out, strict=True):
            call.inputs, call.input_index = native.address(before), native.address(index)
            call.input_row, _ = _strides(before)
            call.outputs, call.output_index = native.address(output), native.address(positions)
            call.output_row, _ = _strides(output)
            before, index = output, positions
        native.run_lstm(calls)
        return ends

    def _make_calls(
        self,
        mask: Bool[np.ndarray, "B T"],
        states: Sequence[LSTMState],
        reset_mask: Bool[np.ndarray, "B T"] | None,
        reset_states: Sequence[LSTMState] | None,
    ) -> tuple["ctypes.Array[LSTMCall]", list[LSTMState], list[np.ndarray]]:
        """Return a call for each layer, without inputs and outputs, and the states after them.

        The caller holds the third part until the calls return: pointers do not keep arrays alive.
        """
        (num_rows, num_steps), num_layers = mask.shape, len(self._calls)
        width, num_cells = self._calls[0].width, self._calls[0].num_cells
        outputs = native.empty((num_layers, num_rows, width))
        cells = native.empty((num_layers, num_rows, num_cells))
        ends = [LSTMState(*parts) for parts in zip(outputs, cells, strict=True)]
        keep_alive = [mask]
        mask_address, (mask_row, mask_step) = native.address(mask), _strides(mask)
        threads = num_threads_for(num_rows * num_cells * 4 * width)
        calls = (LSTMCall * num_layers)(*self._calls)
        for number, call in enumerate(calls):
            if number > 0:
                call.input = self._layers[number].input_structure
            call.mask, call.mask_row, call.mask_step = mask_address, mask_row, mask_step
            output, cell = map(_with_dense_rows, states[number])
            call.first_output, call.first_output_row = native.address(output), _strides(output)[0]
            call.first_cell, call.first_cell_row = native.address(cell), _strides(cell)[0]
            keep_alive += [output, cell]
            if reset_mask is not None and reset_states is not None:
                output, cell = map(_with_dense_rows, reset_states[number])
                call.reset_mask = native.address(reset_mask)
                call.reset_row, call.reset_step = _strides(reset_mask)
                call.reset_output, call.reset_output_row = (
                    native.address(output),
                    _strides(output)[0],
                )
                call.reset_cell, call.reset_cell_row = native.address(cell), _strides(cell)[0]
                keep_alive += [output, cell]
            call.output, call.cell = map(native.address, ends[number])
            call.num_steps, call.num_rows, call.threads = num_steps, num_rows, threads
        return calls, ends, keep_alive

    def _check_inputs(
        self, inputs: Shaped[np.ndarray, "..."], mask: Shaped[np.ndarray, "..."], *, projected: bool
    ) -> None:
        if mask.ndim != 2:
            raise DataError(f"the mask must have 2 dimensions, found {mask.ndim}")
        first = self._layers[0].input
        width = first.height if projected else first.width
        _check_array("inputs", inputs, (*mask.shape, width), np.float32)

    def _check_call(
        self,
        mask: Shaped[np.ndarray, "B T"],
        states: Sequence[LSTMState],
        reset_mask: Shaped[np.ndarray, "..."] | None,
        reset_states: Sequence[LSTMState] | None,
    ) -> None:
        """Refuse what native code would misread, or read past the end of."""
        _check_array("the mask", mask, mask.shape, np.bool_)
        self._check_states(states, len(mask), "the output state", "the cell state")
        if reset_mask is not None and reset_states is not None:
            _check_array("the reset mask", reset_mask, mask.shape, np.bool_)
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


def _check_index(
    name: str, index: Int[np.ndarray, "T B"], shape: tuple[int, ...], least: int, end: int
) -> None:
    """Refuse an index that would have native code read or write elsewhere."""
    _check_array(name, index, shape, np.int64)
    if index.size and not (least <= index.min() and index.max() < end):
        raise DataError(
            f"{name} must be from {least} to {end - 1}, found {index.min()} to {index.max()}"
        )
