"""Many sentences through the LSTMs at a fixed number of rows: lanes.

Each lane reads one sentence after another and starts each with a fresh state, so that almost
nothing is padding. Every matmul has the same number of rows, whatever is in them: so a sentence
gets the same bits in any company, in any lane.

A boundary is the same in every sentence, and so is the state of who has read it: sentences start
from there, and lanes read words only.

Shapes: S steps, B lanes, N distinct words, T words in all, D width of one direction, L LSTM layers.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from elmore.embed import sizes
from elmore.embed.driven import DrivenWords
from elmore.embed.recorded import Recorded
from elmore.embed.transfer import sent
from elmore.model.bilm import BACKWARD, FORWARD, BiLM, BiLMState

IDLE = -1
_VECTORS = 64  # elements: what torch takes at once on any CPU divides it
FEWEST = 4  # lanes
SHORT = 256  # words: up to here a sentence shares most lanes, from here on fewer and fewer


class Plan(NamedTuple):
    """Which word each lane reads at each step, `IDLE` for none; the way back is the mirror."""

    forward: Int[np.ndarray, "S B"]
    backward: Int[np.ndarray, "S B"]
    starts: Bool[np.ndarray, "S B"]


def even_rows(at_least: int, width: int) -> int:
    """Give a number of rows of which torch computes every element in the same way.

    What it works on element by element it cuts into as many pieces as there are threads, but none
    below 32,768 elements, and each piece into vectors; what is left at the end of a piece is
    computed in another way, in other bits. So nothing may be left.
    """
    rows, threads = at_least, torch.get_num_threads()
    while rows * width % (_VECTORS * min(threads, -(-rows * width // 32768))):
        rows += 1
    return rows


def num_lanes(length: int, cell_dim: int, device: torch.device) -> int:
    """Say how many lanes a sentence shares: a matter of its own length and the machine alone.

    Long ones get fewer, or most lanes would wait for the longest: each doubling halves them.
    """
    doublings = max(0, math.ceil(math.log2(max(length, 1) / SHORT)))
    lanes = max(FEWEST, sizes.of(device).lanes >> doublings)
    return even_rows(lanes, cell_dim) if device.type == "cpu" else lanes


def num_steps(lanes: int, device: torch.device) -> int:
    """Say how many steps are taken at a time: more of them where there are fewer lanes."""
    most = sizes.of(device)
    return most.steps * max(1, most.lanes // lanes)


def plan(lengths: Sequence[int], lanes: int, at_once: int) -> Plan:
    """Deal sentences of at least a word out, into as few times `at_once` steps as will do."""
    counts = np.asarray(lengths)
    needed = max(int(counts.max()), -(-int(counts.sum()) // lanes))
    while (firsts := _fit(counts, lanes, needed)) is None:
        needed += max(1, needed // 100)
    steps = at_once * -(-needed // at_once)
    ends = np.cumsum(counts)
    words = np.arange(ends[-1])
    within = words - np.repeat(ends - counts, counts)
    places = np.repeat(firsts, counts) + within * lanes
    forward, backward = np.full((2, steps * lanes), IDLE, dtype=np.int64)
    forward[places] = words
    backward[places] = np.repeat(ends - 1, counts) - within
    starts = np.zeros(steps * lanes, dtype=bool)
    starts[firsts] = True
    return Plan(*(grid.reshape(steps, lanes) for grid in (forward, backward, starts)))


def _fit(lengths: Int[np.ndarray, " n"], lanes: int, steps: int) -> Int[np.ndarray, " n"] | None:
    """Give each sentence its first place: longest first, each where it leaves the least room.

    Places count all lanes of the first step, then those of the next; a lane is told by the places
    from its next on: one number, which is quicker to compare than two.
    """
    rooms = list(range(steps * lanes, steps * lanes + lanes))
    order = np.argsort(-lengths, kind="stable")
    taken = []
    for size in (lengths[order] * lanes).tolist():
        least = bisect_left(rooms, size)
        if least == lanes:
            return None
        room = rooms.pop(least)
        taken.append(room)
        insort(rooms, room - size)
    step, lane = np.divmod(taken, lanes)
    firsts = np.empty(len(lengths), dtype=np.int64)
    firsts[order] = (steps - step) * lanes + lane
    return firsts


def after_boundary(
    model: BiLM, begin: Float[Tensor, " D"], end: Float[Tensor, " D"], start: BiLMState
) -> BiLMState:
    """Give the state of one sentence once each direction has read the boundary it begins with."""
    alone = torch.ones(1, 1, dtype=torch.bool, device=begin.device)
    ends = [
        model.run_direction(
            direction, boundary[None, None], alone, start.direction(direction), training=False
        )[1]
        for direction, boundary in ((FORWARD, begin), (BACKWARD, end))
    ]
    return BiLMState.stack(*ends)


def run(
    model: BiLM,
    words: Float[Tensor, "N D"],
    text: Int[np.ndarray, " T"],
    lengths: Sequence[int],
    start: BiLMState,
    read: Recorded,
) -> Float[Tensor, "L+1 T 2*D"]:
    """Give every layer of sentences that stand one after another in `text`, by number of word.

    None is empty, and all must share their number of lanes. `start` is the state of one sentence.
    A GPU is only told what to do: nothing waits for it, and layers are there when it is done.
    """
    lanes = num_lanes(int(np.max(lengths)), model.config.lstm.cell_dim, words.device)
    at_once = num_steps(lanes, words.device)
    plan_ = plan(lengths, lanes, at_once)
    way = _Way.of(plan_, at_once, words.device)
    width = words.shape[1]
    layers = words.new_empty(model.config.num_layers, len(text), 2 * width)
    (numbers,) = sent([text], words.device)
    layers[0] = words[numbers].repeat(1, 2)
    fresh = BiLMState(*(part.expand(-1, -1, lanes, -1) for part in start))
    for direction, grid in ((FORWARD, plan_.forward), (BACKWARD, plan_.backward)):
        half = slice(direction * width, (direction + 1) * width)
        # Who is idle beside others reads something, and nobody looks.
        driven = DrivenWords(model, direction, words, text[grid.reshape(-1, at_once * lanes)])
        states = anew = fresh.direction(direction)
        for stretch, (busy, home) in enumerate(zip(way.busy, way.homes[direction], strict=True)):
            inputs = driven(stretch).unflatten(0, (at_once, lanes)).transpose(0, 1)
            mask, starts = way.someone[stretch].expand(lanes, -1), way.starts[stretch]
            outputs, states = read(direction, inputs, mask, states, starts, anew)
            for number, output in enumerate(outputs, start=1):
                layers[number, home, half] = output.transpose(0, 1).flatten(0, 1)[busy]
    return layers


class _Way(NamedTuple):
    """A plan where the model is, in K stretches of steps that are taken at once."""

    starts: Bool[Tensor, "K B s"]
    someone: Bool[Tensor, "K s"]
    """Whether any lane reads."""
    busy: Sequence[Int[Tensor, " t"]]
    """Of each stretch: the places where a word is read, steps first, in either direction."""
    homes: Sequence[Sequence[Int[Tensor, " t"]]]
    """Of each direction and stretch: which words those are."""

    @classmethod
    def of(cls, plan: Plan, at_once: int, device: torch.device) -> "_Way":
        lanes = plan.starts.shape[1]
        starts = plan.starts.reshape(-1, at_once, lanes).swapaxes(1, 2)
        busy = (plan.forward != IDLE).reshape(-1, at_once * lanes)
        someone = busy.reshape(-1, at_once, lanes).any(axis=2)
        homes = (grid.reshape(busy.shape)[busy] for grid in (plan.forward, plan.backward))
        arrays = [starts, someone, busy.nonzero()[1], *homes]
        starts, someone, *lists = sent([np.ascontiguousarray(each) for each in arrays], device)
        stops = np.cumsum(np.count_nonzero(busy, axis=1)).tolist()[:-1]
        where, *homes = (each.tensor_split(stops) for each in lists)
        return cls(starts, someone, where, homes)
