"""Where a model runs: limits for the kind of device, and what is done with its arrays.

The schedulers (`packed`, `continuous`) and the caches (`word_tables`) use what arrays of numpy and
tensors of torch have in common; a device adds the rest. `HostDevice` has arrays of numpy, which the
native library reads; `torch_device.py` has tensors, on a GPU and where there is no library.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.packing import PackedPlan
from elmore.model.config import BiLMConfig
from elmore.model.lstm.native import NativeStack
from elmore.model.native import PackedMatrix, empty, has_matrix_unit, multiply, pack
from elmore.model.native_bilm import NativeBiLM, zero_state
from elmore.model.native_threads import Result, run_together
from elmore.model.state import BiLMState, LSTMState
from elmore.weights.whitening import Whitening

Array = Any
"""An array of numpy, or a tensor of torch."""

RunStack = Callable[..., tuple[list[Array], list[LSTMState]]]
"""Runs one direction over gate inputs: arguments of `BiLM.run_direction` after the direction."""


class DeviceLimits(NamedTuple):
    """How much is computed at a time on one kind of device.

    A CPU is fastest while data stays in its caches; a GPU needs large calls to be busy.
    """

    window_tokens: int
    """Default token budget: tokens held at a time, with all their layers."""
    max_rows: int
    """Rows of a packed batch."""
    chunk_steps: int
    """Time steps per call at `max_rows`; fewer rows take more steps."""
    max_chunk_steps: int
    """Time steps per call of a packed batch while it has so many; the last call has fewer. A GPU
    runs multiples of `chunk_steps`, so that products keep their shapes. Bounds the gate memory."""
    cnn_block: int
    """Words per call of the character encoder."""
    projection_block: int
    """Words per call of the input projection."""
    projection_bytes: float
    """Gate inputs that a packed batch holds, per direction."""
    looks_up_projections: bool
    """Whether the gate inputs of a packed batch are looked up in the cache, or projected anew."""
    max_concurrent: int
    """Rows of a continuous batch: more rows would hardly take less time each."""
    cache_megabytes: float
    """Default size of the caches of word vectors and gate inputs."""


CPU = DeviceLimits(
    window_tokens=16384,
    max_rows=96,
    chunk_steps=8,
    max_chunk_steps=8,
    cnn_block=64,
    projection_block=128,
    projection_bytes=48e6,
    looks_up_projections=True,
    max_concurrent=48,
    cache_megabytes=448,
)
GPU = DeviceLimits(
    window_tokens=262144,
    max_rows=1024,
    chunk_steps=8,
    max_chunk_steps=8,
    cnn_block=1024,
    projection_block=1024,
    projection_bytes=1000e6,
    looks_up_projections=False,  # the host would take longer than the GPU
    max_concurrent=256,
    cache_megabytes=1256,
)
# A matrix unit multiplies so wide token vectors in the time in which their gate inputs, of 32 KB a
# word in the bundled model, are read from memory. With fewer rows it waits for the weights.
PROJECTING_WIDTH = 256
PROJECTING_ROWS = 32
LARGE_GPU_BYTES = 64e9
LARGE_GPU = GPU._replace(  # fewer calls: such a GPU may wait for the host
    max_chunk_steps=32,
    projection_bytes=3000e6,
)


class PackedInputs(NamedTuple):
    """What a chunk of a packed batch reads."""

    table: Float[Array, "N G"] | Float[Array, "N D"]
    """A row for each word: its gate inputs, or its token vector."""
    rows: Int[Array, "s B"]
    """The row of the table for each step and row of the chunk."""
    projected: bool
    """Whether the table has gate inputs."""


class PlacedPlan(Protocol):
    """A plan of a packed batch on its device, in S steps and B rows.

    It runs in chunks of some steps; the last one may be shorter.
    """

    @property
    def positions(self) -> Sequence[Int[np.ndarray, "S B"]]:
        """For each direction: the position in the text that each row reads, on the host."""
        ...

    def run(
        self,
        stack: RunStack,
        direction: int,
        chunk: int,
        inputs: PackedInputs,
        states: list[LSTMState],
        reset_states: list[LSTMState],
        out: Array,
    ) -> list[LSTMState]:
        """Run a chunk, and write the outputs of its words to their positions.

        Args:
            stack: What `Device.capture` returned for the direction.
            direction: `FORWARD` or `BACKWARD`.
            chunk: The number of the chunk.
            inputs: What the chunk reads.
            states: State of each layer before the chunk.
            reset_states: State of each layer in which a sentence begins.
            out: Outputs (L, T, D) of every layer at every position.

        Returns:
            The state of each layer after the chunk.
        """
        ...


class Device(Protocol):
    """What is done with arrays beyond what numpy and torch share."""

    type: str
    """ "cpu" or "cuda"."""
    out_of_memory: tuple[type[BaseException], ...]
    """What it raises where a smaller batch may still fit."""

    @property
    def limits(self) -> DeviceLimits:
        """How much is computed at a time."""
        ...

    def inference(self) -> AbstractContextManager[object]:
        """Return a context without gradients and autocast."""
        ...

    def put(self, arrays: Sequence[np.ndarray]) -> list[Array]:
        """Return arrays of numpy as arrays of the device."""
        ...

    def initial_state(self, config: BiLMConfig, state: BiLMState | None) -> BiLMState:
        """Return a state of one row on the device; zeros for None."""
        ...

    def empty(self, *shape: int) -> Array:
        """Return an array of floats that is not initialised."""
        ...

    def take(self, table: Array, rows: Array, out: Array) -> Array:
        """Write rows of a table into `out`, and return it."""
        ...

    def place(self, plan: PackedPlan, chunk: int) -> PlacedPlan:
        """Return a plan ready to run, in chunks of so many steps."""
        ...

    def projects_in_steps(self, num_rows: int, width: int) -> bool:
        """Whether a packed batch reads token vectors (D) and projects them anew in each step.

        Otherwise it reads gate inputs from a table.
        """
        ...

    def run_together(self, functions: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run independent functions, at the same time where that is faster."""
        ...

    def concatenate(self, arrays: Sequence[Array], axis: int) -> Array:
        """Join arrays along an axis."""
        ...

    def flip(self, array: Array, axis: int) -> Array:
        """Reverse the order along an axis."""
        ...

    def repeat_row(self, state: Array, num_rows: int) -> Array:
        """Repeat the one row of a state (2, L, 1, W), without a copy."""
        ...

    def fetch(self, array: Array) -> Callable[[], np.ndarray]:
        """Begin to copy an array to the host; the result waits for the copy and returns it."""
        ...

    def capture(self, stack: RunStack) -> RunStack:
        """Return a quicker form of a stack, whose outputs the next call may overwrite."""
        ...

    def free_memory(self) -> None:
        """Give back memory that is not used."""
        ...

    def stable_rows(self, at_least: int, width: int) -> int:
        """Return a number of rows for which every element is computed in the same way."""
        ...

    def whiten(self, rows: Array, whitening: Whitening) -> Array:
        """Return joined layers (T, W) whitened (T, K), each row with the same bits in any batch."""
        ...


class _HostPlan:
    """A plan for native code, which reads inputs and writes outputs where they are."""

    def __init__(self, plan: PackedPlan, chunk: int) -> None:
        self.positions = plan.forward, plan.backward
        self._first_steps, self._chunk = plan.first_steps, chunk

    def run(
        self,
        stack: RunStack,
        direction: int,
        chunk: int,
        inputs: PackedInputs,
        states: list[LSTMState],
        reset_states: list[LSTMState],
        out: np.ndarray,
    ) -> list[LSTMState]:
        """Run a chunk, and write the outputs of its words to their positions."""
        assert isinstance(stack, NativeStack)
        steps = slice(chunk * self._chunk, (chunk + 1) * self._chunk)
        resets = self._first_steps[steps].T, reset_states
        return stack.run_packed(
            *(inputs.table, inputs.rows, self.positions[direction][steps], states, *resets, out),
            projected=inputs.projected,
        )


class HostDevice:
    """Arrays of numpy on the CPU; with `fast`, the products here round activations to int8."""

    out_of_memory: tuple[type[BaseException], ...] = ()
    type = "cpu"

    def __init__(self, *, fast: bool = False) -> None:
        self._fast = fast
        self._packed: WeakKeyDictionary[Whitening, PackedMatrix] = WeakKeyDictionary()

    def __str__(self) -> str:
        return self.type

    @property
    def limits(self) -> DeviceLimits:
        """Those of a CPU."""
        return CPU

    def inference(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def put(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the arrays themselves."""
        return list(arrays)

    def initial_state(self, config: BiLMConfig, state: BiLMState | None) -> BiLMState:
        """Return a state of one row in float32; zeros for None."""
        if state is None:
            return zero_state(config.lstm, 1)
        if isinstance(state.cell, np.ndarray):
            return state
        return BiLMState(*(part.detach().float().cpu().numpy() for part in state))

    def empty(self, *shape: int) -> np.ndarray:
        """Return an array of float32 that is not initialised."""
        return empty(shape)

    def take(self, table: np.ndarray, rows: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write rows of a table into `out`, and return it."""
        return np.take(table, rows, axis=0, out=out, mode="clip")  # "raise" would copy `out`

    def place(self, plan: PackedPlan, chunk: int) -> PlacedPlan:
        """Return a plan ready to run, in chunks of so many steps."""
        return _HostPlan(plan, chunk)

    def projects_in_steps(self, num_rows: int, width: int) -> bool:
        """Whether it is as quick to project token vectors in each step as to read gate inputs."""
        enough = num_rows >= PROJECTING_ROWS and width <= PROJECTING_WIDTH
        return enough and self._fast and has_matrix_unit()

    def run_together(self, functions: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run independent functions at the same time, each with its part of the threads."""
        return run_together(functions)

    def concatenate(self, arrays: Sequence[np.ndarray], axis: int) -> np.ndarray:
        """Join arrays along an axis."""
        return np.concatenate(arrays, axis=axis)

    def flip(self, array: np.ndarray, axis: int) -> np.ndarray:
        """Reverse the order along an axis."""
        return np.flip(array, axis)

    def repeat_row(self, state: np.ndarray, num_rows: int) -> np.ndarray:
        """Repeat the one row of a state (2, L, 1, W), without a copy."""
        return np.broadcast_to(state, (*state.shape[:2], num_rows, state.shape[3]))

    def fetch(self, array: np.ndarray) -> Callable[[], np.ndarray]:
        """Return a function that returns the array: it is on the host."""
        return lambda: array

    def capture(self, stack: RunStack) -> RunStack:
        """Return the stack itself."""
        return stack

    def free_memory(self) -> None:
        """Do nothing: no batch is made smaller here."""

    def stable_rows(self, at_least: int, width: int) -> int:
        """Return `at_least`: the library computes every element in the same way."""
        del width
        return at_least

    def whiten(self, rows: np.ndarray, whitening: Whitening) -> np.ndarray:
        """Return joined layers (T, W) whitened (T, K), each row with the same bits in any batch."""
        if whitening not in self._packed:
            self._packed[whitening] = pack(whitening.projection, dynamic=self._fast)
        return multiply(self._packed[whitening], rows, whitening.bias)


HOST, FAST_HOST = HostDevice(), HostDevice(fast=True)


class Network(NamedTuple):
    """A model as functions on arrays of its device."""

    config: BiLMConfig
    device: Device
    encode: Callable[[Array | None, Array | None], Array]
    """Token vectors (N, D) of words, from their character ids (N, C) or word ids (N)."""
    stacks: Sequence[RunStack]
    """For each direction."""
    project: Sequence[Callable[[Array], Array]]
    """For each direction, the gate inputs (B, T, G) of token vectors (B, T, D)."""
    fixed_shapes: bool
    """Whether a row gets the same bits only in batches of one shape."""


def native_network(model: NativeBiLM, *, fast: bool) -> Network:
    """Return a network that native code runs; with `fast`, its weights are packed for int8."""
    device, project = FAST_HOST if fast else HOST, [stack.project_inputs for stack in model.stacks]
    return Network(model.config, device, model.tokens, model.stacks, project, fixed_shapes=False)
