"""Run one direction of a biLM as CUDA graphs.

A step of an LSTM is a few small kernels, which take a CPU longer to launch than a GPU to run. A
graph launches those of all steps of a chunk at once. It is captured for one shape and one memory.

Shapes: B rows, S steps, N words, G = 4H gates, D width of one direction.
"""

from collections import Counter
from collections.abc import Hashable
from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from elmore.embed.device import RunStack
from elmore.model.state import LSTMState

_EAGER_RUNS = 2  # runs of a shape before it is captured: a little text is not worth a capture


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    """What changes from call to call: gate inputs, both masks, and the parts of the states."""
    states: list[LSTMState]
    """Those parts, which the graph overwrites with the states after the call."""
    reset_states: list[LSTMState]
    """Read where the first caller has them, and kept alive here."""
    outputs: list[Tensor]


class CUDAGraphRunner:
    """Runs one direction of a biLM; shapes that recur become CUDA graphs.

    The next call, of whatever shape, may overwrite outputs and states, so one thread at a time may
    use a runner. Graphs read some inputs where they are: gate inputs in `gate_inputs_buffer`, the
    states that were returned, and reset states, which must not change; others have their own graph.
    """

    def __init__(self, run: RunStack) -> None:
        self._run = run
        self._num_runs: Counter[Hashable] = Counter()
        self._captured: dict[Hashable, _Captured] = {}
        self._gate_inputs: Tensor | None = None
        self._stream: torch.cuda.Stream | None = None

    def gate_inputs_buffer(self, num_words: int, like: Float[Tensor, "N G"]) -> Tensor:
        """Return memory for gate inputs as wide as `like`, the same in each call.

        For more words than ever before it is new memory, and graphs are captured anew: the others
        would keep the memory that they read alive.
        """
        if self._gate_inputs is None or len(self._gate_inputs) < num_words:
            self._captured.clear()
            self._gate_inputs = None  # before there is more
            self._gate_inputs = like.new_empty(num_words, like.shape[1])
        return self._gate_inputs[:num_words]

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
        resets = chain.from_iterable(reset_states)
        key = gate_inputs.shape, *((part.data_ptr(), part.stride()) for part in resets)
        self._num_runs[key] += 1
        if self._num_runs[key] <= _EAGER_RUNS:
            return self._run(gate_inputs, mask, states, reset_mask, reset_states)
        inputs = [gate_inputs, mask, reset_mask, *chain.from_iterable(states)]
        if key not in self._captured:
            self._captured[key] = self._capture(inputs, reset_states)
        captured = self._captured[key]
        changed = [
            number
            for number, (old, new) in enumerate(zip(captured.inputs, inputs, strict=True))
            if old.data_ptr() != new.data_ptr() or old.stride() != new.stride()
        ]  # in the middle of a text only the masks
        torch._foreach_copy_(
            [captured.inputs[number] for number in changed], [inputs[number] for number in changed]
        )
        captured.graph.replay()
        return captured.outputs, captured.states

    def _capture(self, inputs: list[Tensor], reset_states: list[LSTMState]) -> _Captured:
        where = inputs[0].device
        # The gate inputs of a chunk are large, and stay where they are; a part of another tensor
        # would keep all of it alive.
        shares = self._gate_inputs is not None and _share_memory(inputs[0], self._gate_inputs)
        gate_inputs = inputs[0] if shares else inputs[0].clone()
        mask, reset_mask, *parts = [each.clone() for each in inputs[1:]]
        states = list(map(LSTMState, parts[::2], parts[1::2]))
        # What a graph holds while it runs is shared with the others, which run before or after it.
        # Memory is reused in one stream only. Torch's own is on the device of its first capture.
        others = next(iter(self._captured.values()), None)
        pool = others.graph.pool() if others else None
        self._stream = self._stream or torch.cuda.Stream(where)
        graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.device(where),
            torch.cuda.graph(graph, pool=pool, stream=self._stream),
        ):
            outputs, after = self._run(gate_inputs, mask, states, reset_mask, reset_states)
            torch._foreach_copy_(parts, list(chain.from_iterable(after)))
        inputs = [gate_inputs, mask, reset_mask, *parts]
        return _Captured(graph, inputs, states, reset_states, outputs)


def _share_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
