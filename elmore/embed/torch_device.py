"""Run with torch: on a GPU, or on a CPU without the native library. Copies, and CUDA graphs.

A GPU runs asynchronously and copies from and to pinned host memory, so nothing here waits for it.
Pinning memory is slow: arrays are copied in one buffer, and torch reuses buffers that were pinned.

Shapes: B rows, S steps, G = 4H gates, D width of one direction.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from elmore.embed import device
from elmore.embed.packing import IDLE, PackedPlan
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig
from elmore.model.cuda_streams import run_in_streams
from elmore.model.lstm.call import disable_autocast
from elmore.model.native_bilm import zero_state
from elmore.model.native_threads import Result
from elmore.model.state import BACKWARD, FORWARD, BiLMState, LSTMState
from elmore.weights.whitening import Whitening

_ALIGNMENT = 16  # bytes
_EAGER_RUNS = 2  # runs of a shape before it is captured: a little text is not worth a capture
_VECTOR = 64  # elements: a multiple of the SIMD width of every CPU


class TorchDevice:
    """Tensors of torch, of one type on one device."""

    out_of_memory: tuple[type[BaseException], ...] = (torch.OutOfMemoryError,)

    def __init__(self, like: Tensor) -> None:
        self._like = like.detach()
        self._device = like.device
        self.type = self._device.type
        self._dense: WeakKeyDictionary[Whitening, list[Tensor]] = WeakKeyDictionary()
        self._side_streams: list[torch.cuda.Stream] = []
        self._gate_inputs = [self.empty(0), self.empty(0)]  # of one chunk of each direction

    @property
    def limits(self) -> device.DeviceLimits:
        """Those of its kind."""
        return device.CPU if self.type == "cpu" else device.GPU

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Switch gradients and autocast off."""
        with torch.no_grad(), disable_autocast(self._device):
            yield

    def put(self, arrays: Sequence[np.ndarray]) -> list[Tensor]:
        """Copy arrays to the device; on a CPU the tensors share their memory."""
        return to_device(arrays, self._device)

    def initial_state(self, config: BiLMConfig, state: BiLMState | None) -> BiLMState:
        """Return a state of one row on the device; zeros for None."""
        return BiLMState(
            *(torch.as_tensor(part).to(self._like) for part in state or zero_state(config.lstm, 1))
        )

    def empty(self, *shape: int) -> Tensor:
        """Return a tensor that is not initialised."""
        return self._like.new_empty(shape)

    def take(self, table: Tensor, rows: Tensor, out: Tensor) -> Tensor:
        """Write rows of a table into `out`, and return it."""
        return torch.index_select(table, 0, rows, out=out)

    def gate_inputs_buffer(self, direction: int, num_words: int, num_gates: int) -> Tensor:
        """Return memory for gate inputs; on a GPU the same in each call, for CUDA graphs to read.

        More words than ever before get new memory. On a CPU several threads may run at once.
        """
        if self.type != "cuda":
            return self.empty(num_words, num_gates)
        if len(self._gate_inputs[direction]) < num_words:
            self._gate_inputs[direction] = self.empty(num_words, num_gates)
        return self._gate_inputs[direction][:num_words]

    def place(self, plan: PackedPlan, chunk: int) -> device.PlacedPlan:
        """Return a plan ready to run, in chunks of so many steps."""
        return _TorchPlan(plan, chunk, self)

    def run_together(self, functions: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run functions one after another; a GPU runs what they launch at the same time."""
        if self.type != "cuda":
            return [function() for function in functions]
        while len(self._side_streams) < len(functions) - 1:
            self._side_streams.append(torch.cuda.Stream(self._device))
        return run_in_streams(functions, self._side_streams)

    def concatenate(self, arrays: Sequence[Tensor], axis: int) -> Tensor:
        """Join tensors along an axis."""
        return torch.cat(list(arrays), dim=axis)

    def flip(self, array: Tensor, axis: int) -> Tensor:
        """Reverse the order along an axis."""
        return array.flip(axis)

    def repeat_row(self, state: Tensor, num_rows: int) -> Tensor:
        """Repeat the one row of a state (2, L, 1, W), without a copy."""
        return state.expand(-1, -1, num_rows, -1)

    def fetch(self, array: Tensor) -> Callable[[], np.ndarray]:
        """Begin to copy a tensor to the host, without waiting for it."""
        return PinnedFetch(array).numpy

    def capture(self, stack: device.RunStack) -> device.RunStack:
        """Return a stack, on a GPU as CUDA graphs: the next call overwrites their outputs."""
        return CUDAGraphRunner(stack) if self.type == "cuda" else stack

    def free_memory(self) -> None:
        """Give back memory that torch holds and does not use."""
        self._gate_inputs = [self.empty(0), self.empty(0)]
        torch.cuda.empty_cache()

    def stable_rows(self, at_least: int, width: int) -> int:
        """Return a number of rows for which every element is computed in the same way."""
        return rows_for_bitwise_stability(at_least, width) if self.type == "cpu" else at_least

    def whiten(self, rows: Tensor, whitening: Whitening) -> Tensor:
        """Return joined layers (T, W) whitened (T, K), each row with the same bits in any batch."""
        if whitening not in self._dense:
            arrays = (np.ascontiguousarray(whitening.projection.dense().T), whitening.bias)
            self._dense[whitening] = [each.to(self._like) for each in self.put(arrays)]
        weight, bias = self._dense[whitening]
        size = self.stable_rows(self.limits.projection_block, whitening.width)
        whitened = self.empty(len(rows), whitening.width)
        for begin in range(0, len(rows), size):  # in blocks of one shape
            block = rows[begin : begin + size]
            (repeated,) = self.put([np.arange(size) % len(block)])
            product = torch.addmm(bias, block[repeated], weight)
            whitened[begin : begin + size] = product[: len(block)]
        return whitened


class _TorchPlan:
    """A plan whose indices are on the device, so that no chunk waits for a GPU."""

    def __init__(self, plan: PackedPlan, chunk: int, owner: TorchDevice) -> None:
        num_rows = plan.first_steps.shape[1]
        grids = (plan.forward, plan.backward, plan.first_steps)
        forward, backward, first_steps = (grid.reshape(-1, chunk, num_rows) for grid in grids)
        active = forward != IDLE
        self.positions = forward, backward
        self._device = owner
        # A step runs for all rows or for none; the outputs of idle rows are not used.
        any_active = np.broadcast_to(active.any(axis=2, keepdims=True), active.shape)
        # Lists of all chunks one after another, split below: active cells, and their positions.
        flat = active.reshape(len(active), -1)
        indices = [flat.nonzero()[1], forward[active], backward[active]]
        masks = [first_steps.swapaxes(1, 2), any_active.swapaxes(1, 2)]
        self._first_steps, self._any_active, *lists = owner.put(
            list(map(np.ascontiguousarray, [*masks, *indices]))
        )
        stops = np.cumsum([0, *np.count_nonzero(flat, axis=1)]).tolist()
        self._cells, *self._active_positions = (
            [each[begin:end] for begin, end in pairwise(stops)] for each in lists
        )

    def run(
        self,
        stack: device.RunStack,
        direction: int,
        chunk: int,
        gate_inputs: tuple[Tensor, Tensor],
        states: list[LSTMState],
        reset_states: list[LSTMState],
        out: Tensor,
    ) -> list[LSTMState]:
        """Run a chunk, and write the outputs of its words to their positions."""
        table, rows = gate_inputs
        buffer = self._device.gate_inputs_buffer(direction, rows.numel(), table.shape[1])
        taken = self._device.take(table, rows.reshape(-1), buffer)
        outputs, states = stack(
            taken.reshape(*rows.shape, -1).swapaxes(0, 1),
            self._any_active[chunk],
            states,
            self._first_steps[chunk],
            reset_states,
        )
        for layer, output in zip(out, outputs, strict=True):
            cells = output.swapaxes(0, 1).reshape(-1, output.shape[2])
            layer[self._active_positions[direction][chunk]] = cells[self._cells[chunk]]
        return states


def torch_network(model: BiLM) -> device.Network:
    """Return a network that torch runs."""
    both = (FORWARD, BACKWARD)
    run = partial(model.run_direction, projected=True, training=False)
    return device.Network(
        model.config,
        TorchDevice(next(model.parameters())),
        model.tokens,
        [partial(run, each) for each in both],
        [partial(model.project_inputs, each) for each in both],
        fixed_shapes=True,
    )


def rows_for_bitwise_stability(at_least: int, width: int) -> int:
    """Return a number of rows for which torch computes every element on a CPU in the same way.

    Element-wise operations are cut into one piece per thread (of at least 32,768 elements) and each
    piece into SIMD vectors; the tail of a piece is computed by other code, with other bits. So the
    number of rows is chosen so that no piece has a tail.
    """
    rows, threads = at_least, torch.get_num_threads()
    while rows * width % (_VECTOR * min(threads, -(-rows * width // 32768))):
        rows += 1
    return rows


def to_device(arrays: Sequence[np.ndarray], where: torch.device) -> list[Tensor]:
    """Copy arrays to a device; for a GPU in one buffer, without waiting for it."""
    if where.type != "cuda":
        return [torch.from_numpy(array).to(where) for array in arrays]
    buffer = torch.empty(buffer_size(arrays), dtype=torch.uint8, pin_memory=True)
    fill_buffer(arrays, buffer.numpy())
    return split_buffer(buffer.to(where, non_blocking=True), arrays)


def buffer_size(arrays: Sequence[np.ndarray]) -> int:
    """Return the number of bytes that `fill_buffer` writes."""
    return _ends(arrays)[-1]


def fill_buffer(arrays: Sequence[np.ndarray], buffer: np.ndarray) -> None:
    """Write the bytes of arrays one after another, aligned."""
    for array, end in zip(arrays, _ends(arrays)[1:], strict=True):
        begin = end - _aligned_size(array)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer[begin : begin + array.nbytes] = data


def split_buffer(buffer: Tensor, like: Sequence[np.ndarray]) -> list[Tensor]:
    """Return the arrays in a buffer that `fill_buffer` filled, as views of it."""
    views = []
    for array, end in zip(like, _ends(like)[1:], strict=True):
        begin = end - _aligned_size(array)
        dtype = torch.from_numpy(array[:0]).dtype
        views.append(buffer[begin : begin + array.nbytes].view(dtype).view(array.shape))
    return views


def _ends(arrays: Sequence[np.ndarray]) -> list[int]:
    return [0, *accumulate(map(_aligned_size, arrays))]


def _aligned_size(array: np.ndarray) -> int:
    return -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT


class PinnedFetch:
    """An asynchronous copy of a tensor to the host; `numpy()` waits for it."""

    def __init__(self, tensor: Tensor) -> None:
        self._copied = None
        self._host = tensor
        if tensor.is_cuda:
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(tensor.device))

    def numpy(self) -> np.ndarray:
        """Return the array, once it is on the host."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._host.cpu().numpy()


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    static_inputs: list[Tensor]
    static_outputs: tuple[list[Tensor], list[LSTMState]]


class CUDAGraphRunner:
    """Runs one direction of a biLM; shapes that recur become CUDA graphs.

    A step of an LSTM is a few small kernels, which take a CPU longer to launch than a GPU to run.
    The outputs are overwritten by the next call, so one thread at a time may use a runner. The gate
    inputs are not copied if they are in the memory that they had when the graph was captured.
    """

    def __init__(self, run: device.RunStack) -> None:
        self._run_eagerly = run
        self._num_runs: dict[torch.Size, int] = {}
        self._captured: dict[torch.Size, _Captured] = {}

    @torch.no_grad()
    def __call__(
        self,
        gate_inputs: Float[Tensor, "B S G"],
        mask: Bool[Tensor, "B S"],
        states: list[LSTMState],
        reset_mask: Bool[Tensor, "B S"],
        reset_states: list[LSTMState],
    ) -> tuple[list[Float[Tensor, "B S D"]], list[LSTMState]]:
        """Return what `BiLM.run_direction` returns."""
        shape = gate_inputs.shape
        parts = (part for state in (*states, *reset_states) for part in state)
        inputs = [gate_inputs, mask, reset_mask, *parts]
        num_runs = self._num_runs[shape] = self._num_runs.get(shape, 0) + 1
        if num_runs <= _EAGER_RUNS:
            return self._run(inputs)
        if shape not in self._captured:
            self._captured[shape] = self._capture(inputs)
        captured = self._captured[shape]
        for static, new in zip(captured.static_inputs, inputs, strict=True):
            if static.data_ptr() != new.data_ptr() or static.stride() != new.stride():
                static.copy_(new)
        captured.graph.replay()
        return captured.static_outputs

    def _run(self, inputs: list[Tensor]) -> tuple[list[Tensor], list[LSTMState]]:
        gate_inputs, mask, reset_mask, *parts = inputs
        pairs = [LSTMState(*parts[i : i + 2]) for i in range(0, len(parts), 2)]
        states, reset_states = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
        return self._run_eagerly(gate_inputs, mask, states, reset_mask, reset_states)

    def _capture(self, inputs: list[Tensor]) -> _Captured:
        gate_inputs, *others = inputs
        # The gate inputs of a chunk are large, and stay where they are; a part of a larger tensor
        # would keep all of it alive.
        is_part = gate_inputs.untyped_storage().nbytes() > gate_inputs.nbytes
        static = gate_inputs.clone() if is_part else gate_inputs
        static_inputs = [static, *(part.clone() for part in others)]
        graph, where = torch.cuda.CUDAGraph(), gate_inputs.device
        # Torch captures on the current device, in a stream that it keeps from its first capture.
        with (
            torch.cuda.device(where),
            torch.cuda.graph(graph, stream=torch.cuda.Stream(where)),
        ):
            static_outputs = self._run(static_inputs)
        return _Captured(graph, static_inputs, static_outputs)
