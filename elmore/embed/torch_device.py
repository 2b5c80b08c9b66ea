"""Run with torch: on a GPU, or on a CPU without the native library; copies.

A GPU runs asynchronously and copies from and to pinned host memory, so nothing here waits for it.
Pinning memory is slow: arrays are copied in one buffer, and torch reuses buffers that were pinned.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, pairwise
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from elmore.embed import device
from elmore.embed.cuda_graph import CUDAGraphRunner
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

    @property
    def limits(self) -> device.DeviceLimits:
        """Those of its kind, and of its size."""
        if self.type == "cpu":
            return device.CPU
        memory = torch.cuda.get_device_properties(self._device).total_memory
        return device.LARGE_GPU if memory >= device.LARGE_GPU_BYTES else device.GPU

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

    def place(self, plan: PackedPlan, chunk: int) -> device.PlacedPlan:
        """Return a plan ready to run, in chunks of so many steps."""
        return _TorchPlan(plan, chunk, self)

    def projects_in_steps(self, num_rows: int, width: int) -> bool:
        """Return False: products have other shapes in a step."""
        del num_rows, width
        return False

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
        active = plan.forward != IDLE
        self.positions = plan.forward, plan.backward
        self._device, self._chunk = owner, chunk
        # A step runs for all rows or for none; the outputs of idle rows are not used.
        any_active = np.broadcast_to(active.any(axis=1, keepdims=True), active.shape)
        # Lists of all chunks one after another, split below: active cells, and their positions.
        cells, size = active.reshape(-1).nonzero()[0], chunk * active.shape[1]
        indices = [cells % size, plan.forward[active], plan.backward[active]]
        self._first_steps, self._any_active, *lists = owner.put(
            list(map(np.ascontiguousarray, [plan.first_steps, any_active, *indices]))
        )
        begins = np.searchsorted(cells, np.arange(0, active.size, size))
        stops = [*begins.tolist(), len(cells)]
        self._cells, *self._active_positions = (
            [each[begin:end] for begin, end in pairwise(stops)] for each in lists
        )

    def run(
        self,
        stack: device.RunStack,
        direction: int,
        chunk: int,
        inputs: device.PackedInputs,
        states: list[LSTMState],
        reset_states: list[LSTMState],
        out: Tensor,
    ) -> list[LSTMState]:
        """Run a chunk, and write the outputs of its words to their positions."""
        table, rows, _ = inputs
        if isinstance(stack, CUDAGraphRunner):
            buffer = stack.gate_inputs_buffer(rows.numel(), table)
        else:
            buffer = self._device.empty(rows.numel(), table.shape[1])
        taken = self._device.take(table, rows.reshape(-1), buffer)
        steps = slice(chunk * self._chunk, (chunk + 1) * self._chunk)
        outputs, states = stack(
            taken.reshape(*rows.shape, -1).swapaxes(0, 1),
            self._any_active[steps].T,
            states,
            self._first_steps[steps].T,
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
