"""Continuous batching (Yu et al., 2022, "Orca"): sentences join and leave a running batch.

In a packed batch all sentences are known beforehand. A server does not know them, and none should
wait for the end of all others: each row of the batch holds one sentence, a few time steps run at a
time, and a row whose sentence ends takes the next one that waits. The two directions run side by
side, each from its own end.

The weights are read once for all rows of a step, so one more row hardly costs the others time, up
to some number. The sentences of a large request wait for each other: a later request with few
sentences does not wait behind all of them.

Shapes: B rows, S steps, T tokens of one sentence, L LSTM layers, D width of one direction.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.embed.device import Array, Device
from elmore.embed.runtime import Runtime
from elmore.model.state import BACKWARD, BOTH, FORWARD, BiLMState, LSTMState, stack_states

_MIN_STEPS = 4  # fewer steps per call cost more than rows that idle meanwhile
_ROWS_PER_STEP = 8  # the more rows, the sooner one of them ends: one step more for so many rows


@dataclass(eq=False)
class ActiveSequence:
    """A sentence and its layers, which are complete when `num_left` is 0."""

    words: tuple[str, ...]
    layers: Float[Array, "L+1 T 2*D"]
    priority: int
    """The sequence with the smallest number starts first."""
    num_done: int = 0

    @property
    def num_left(self) -> int:
        """Number of tokens that each direction has not read yet."""
        return len(self.words) - self.num_done


class _Segment(NamedTuple):
    """Consecutive tokens of a sequence, in a row from some step on."""

    sequence: ActiveSequence
    row: int
    step: int
    num_tokens: int

    def span(self, direction: int) -> slice:
        """Return their positions in the sentence."""
        sequence = self.sequence
        begin = sequence.num_done
        if direction == BACKWARD:
            begin = sequence.num_left - self.num_tokens
        return slice(begin, begin + self.num_tokens)

    def words(self, direction: int) -> Sequence[str]:
        """Return the words in the order in which the direction reads them."""
        words = self.sequence.words[self.span(direction)]
        return words if direction == FORWARD else words[::-1]

    def store(
        self, direction: int, outputs: Sequence[Float[Array, "B S D"]], device: Device
    ) -> None:
        """Write the outputs of a direction, of every layer, into the layers of the sequence."""
        layers, span = self.sequence.layers, self.span(direction)
        for layer, output in enumerate(outputs, start=1):
            width = output.shape[2]
            half = slice(direction * width, (direction + 1) * width)
            cells = output[self.row, self.step : self.step + self.num_tokens]
            layers[layer, span, half] = cells if direction == FORWARD else device.flip(cells, 0)


class ContinuousBatcher:
    """Runs sentences that come and go; one thread at a time may call it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._limits = runtime.limits
        self._active: list[ActiveSequence] = []  # those that have started come first
        self._rows: dict[ActiveSequence, int] = {}  # of those
        self._state = runtime.reset_rows(0)  # of the rows
        self._priority = 0  # of the sequence that started last

    def add(self, requests: Sequence[Sequence[Sequence[str]]]) -> list[list[ActiveSequence]]:
        """Add the tokenised texts of requests, and return a sequence for each text."""
        runtime = self._runtime
        words = [word for texts in requests for text in texts for word in text]
        with runtime.device.inference():
            vectors = runtime.token_vectors(words)
            if len(words) <= self._limits.projection_block:  # one product now, not one in each step
                for direction in (FORWARD, BACKWARD):
                    self._gate_inputs(direction, words)
        added, begin = [], 0
        for texts in requests:
            sequences = []
            for number, text in enumerate(texts):
                layers = runtime.device.empty(runtime.num_layers, len(text), runtime.width)
                half = runtime.width // 2
                layers[0, :, :half] = layers[0, :, half:] = vectors[begin : begin + len(text)]
                begin += len(text)
                sequences.append(ActiveSequence(tuple(text), layers, self._priority + number))
            added.append(sequences)
        new = [sequence for sequences in added for sequence in sequences if sequence.num_left]
        self._active = sorted(self._active + new, key=lambda one: (not one.num_done, one.priority))
        return added

    def cancel(self, sequences: Collection[ActiveSequence]) -> None:
        """Remove sequences from the batch; those that are not in it are ignored."""
        canceled = set(sequences)
        self._active = [one for one in self._active if one not in canceled]
        self._rows = {one: row for one, row in self._rows.items() if one not in canceled}

    def step(self) -> None:
        """Run a few time steps, and remove the sequences that are complete."""
        if not self._active:
            return
        max_rows = self._limits.max_concurrent
        running, waiting = self._active[:max_rows], self._active[max_rows:]
        steps = self._limits.chunk_steps
        if not waiting:
            left = [sequence.num_left for sequence in running]
            fewest = _MIN_STEPS + len(running) // _ROWS_PER_STEP
            steps = min(steps, max(left), max(min(left), fewest))
        segments = _assign(running, iter(waiting), steps)
        started = [self._rows[sequence] for sequence in running if sequence.num_done]
        before = _concatenate(
            _select_rows(self._state, started, self._runtime.device),
            self._runtime.reset_rows(len(running) - len(started)),
            self._runtime.device,
        )
        with self._runtime.device.inference():
            state = self._run(segments, before, steps)
        # Nothing fails from here on: a step that raised has changed no sequence.
        for segment in segments:
            segment.sequence.num_done += segment.num_tokens
        self._priority = max(self._priority, *(one.sequence.priority for one in segments))
        self._state = state
        self._rows = {one.sequence: one.row for one in segments if one.sequence.num_left}
        self._active = [sequence for sequence in self._active if sequence.num_left]

    def _gate_inputs(self, direction: int, words: Sequence[str]) -> Float[Array, "n G"]:
        runtime = self._runtime
        return runtime.projections[direction](
            words, lambda at: runtime.token_vectors([words[i] for i in at])
        )

    def _run(self, segments: list[_Segment], before: BiLMState, steps: int) -> BiLMState:
        """Store the outputs of both directions, and return the state of all rows."""
        num_rows, device = before.output.shape[2], self._runtime.device
        each = [(one.step + np.arange(one.num_tokens)) * num_rows + one.row for one in segments]
        cells = np.concatenate(each)
        first_cells = [
            cell[0] for cell, one in zip(each, segments, strict=True) if not one.sequence.num_done
        ]
        mask, reset_mask = np.zeros((2, steps * num_rows), dtype=bool)
        mask[cells] = reset_mask[first_cells] = True
        index = np.zeros(steps * num_rows, dtype=np.int64)  # idle cells read any word
        index[cells] = np.arange(len(cells))
        grids = [grid.reshape(steps, num_rows) for grid in (mask, reset_mask, index)]
        mask, reset_mask, index = device.put(grids)
        reset = self._runtime.reset_rows(num_rows)
        gate_inputs = []  # (S, B, G) of each direction; not in `run`, as both share a cache
        for direction in BOTH:
            words = [word for segment in segments for word in segment.words(direction)]
            gate_inputs.append(self._gate_inputs(direction, words)[index])

        def run(direction: int) -> list[LSTMState]:
            outputs, after = self._runtime.stacks[direction](
                gate_inputs[direction].swapaxes(0, 1),
                mask.T,
                before.direction(direction),
                reset_mask.T if first_cells else None,
                reset.direction(direction),
            )
            for segment in segments:
                segment.store(direction, outputs, device)
            return after

        return stack_states(*device.run_together([partial(run, each) for each in BOTH]))


def _assign(
    running: Sequence[ActiveSequence], waiting: Iterator[ActiveSequence], steps: int
) -> list[_Segment]:
    """Assign a row to each sequence; a row whose sequence ends takes the next waiting one."""
    segments = []
    for row, first in enumerate(running):
        sequence, step = first, 0
        while sequence is not None and step < steps:
            num_tokens = min(sequence.num_left, steps - step)
            segments.append(_Segment(sequence, row, step, num_tokens))
            step += sequence.num_left
            sequence = next(waiting, None) if step < steps else None
    return segments


def _select_rows(state: BiLMState, rows: list[int], device: Device) -> BiLMState:
    if rows == list(range(state.output.shape[2])):
        return state  # the usual case
    (index,) = device.put([np.array(rows, dtype=np.int64)])
    return BiLMState(*(part[:, :, index] for part in state))


def _concatenate(first: BiLMState, second: BiLMState, device: Device) -> BiLMState:
    if not second.output.shape[2]:
        return first
    pairs = zip(first, second, strict=True)
    return BiLMState(*(device.concatenate(parts, axis=2) for parts in pairs))
