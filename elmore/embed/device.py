"""Run on a device: limits for its kind, copies to it and from it, and CUDA graphs.

A GPU runs asynchronously and reads pinned host memory by itself, so nothing here waits for it.
Pinning memory is slow: arrays travel in one buffer, and torch reuses buffers that were pinned.

Shapes: B rows, S steps, G = 4H gates, D width of one direction.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from elmore.model.lstm.call import LSTMState

_ALIGNMENT = 16  # bytes
_EAGER_RUNS = 2  # runs of a shape before it is captured: a little text is not worth a capture
_VECTOR = 64  # elements: a multiple of the SIMD width of every CPU


class DeviceLimits(NamedTuple):
    """How much is computed at a time on one kind of device.

    A CPU is fastest while data stays in its caches; a GPU needs large calls to be busy.
    """

    window_tokens: int
    """Default token budget: tokens held at a time, with all their layers."""
    max_rows: int
    """Rows of a packed batch."""
    chunk_steps: int
    """Time steps per call at `max_rows`; fewer rows take more steps. Bounds the gate memory."""
    cnn_block: int
    """Words per call of the character encoder."""
    projection_block: int
    """Words per call of the input projection."""
    projection_bytes: float
    """Gate inputs that a packed batch holds, per direction."""
    max_concurrent: int
    """Rows of a continuous batch: more rows would hardly take less time each."""
    cache_megabytes: float
    """Default size of the caches of word vectors and gate inputs."""


CPU = DeviceLimits(
    window_tokens=16384,
    max_rows=96,
    chunk_steps=8,
    cnn_block=64,
    projection_block=128,
    projection_bytes=96e6,
    max_concurrent=48,
    cache_megabytes=448,
)
GPU = DeviceLimits(
    window_tokens=262144,
    max_rows=1024,
    chunk_steps=8,
    cnn_block=1024,
    projection_block=1024,
    projection_bytes=500e6,
    max_concurrent=256,
    cache_megabytes=1256,
)


def limits_for(device: torch.device) -> DeviceLimits:
    """Return the limits for a kind of device."""
    return CPU if device.type == "cpu" else GPU


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


def to_device(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Copy arrays to a device; for a GPU in one buffer, without waiting for it."""
    if device.type != "cuda":
        return [torch.from_numpy(array).to(device) for array in arrays]
    buffer = torch.empty(buffer_size(arrays), dtype=torch.uint8, pin_memory=True)
    fill_buffer(arrays, buffer.numpy())
    return split_buffer(buffer.to(device, non_blocking=True), arrays)


def tensor_maker(device: torch.device) -> Callable[[np.ndarray], Tensor]:
    """Return a function that copies an array to a device; on a CPU the tensor shares its memory."""
    if device.type == "cpu":
        return torch.from_numpy
    return lambda array: to_device([array], device)[0]


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


RunStack = Callable[..., tuple[list[Tensor], list[LSTMState]]]
"""Runs one direction over gate inputs: arguments of `BiLM.run_direction` after the direction."""


class CUDAGraphRunner:
    """Runs one direction of a biLM; shapes that recur become CUDA graphs.

    A step of an LSTM is a few small kernels, which take a CPU longer to launch than a GPU to run.
    The outputs are overwritten by the next call, so one thread at a time may use a runner.
    """

    def __init__(self, run: RunStack) -> None:
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
            static.copy_(new)
        captured.graph.replay()
        return captured.static_outputs

    def _run(self, inputs: list[Tensor]) -> tuple[list[Tensor], list[LSTMState]]:
        gate_inputs, mask, reset_mask, *parts = inputs
        pairs = [LSTMState(*parts[i : i + 2]) for i in range(0, len(parts), 2)]
        states, reset_states = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
        return self._run_eagerly(gate_inputs, mask, states, reset_mask, reset_states)

    def _capture(self, inputs: list[Tensor]) -> _Captured:
        static_inputs = [part.clone() for part in inputs]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static_outputs = self._run(static_inputs)
        return _Captured(graph, static_inputs, static_outputs)
