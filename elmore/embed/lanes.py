"""Many sentences through the LSTMs at a fixed number of rows: lanes.

Each lane reads one sentence after another and starts each with a fresh state, so that almost
nothing is padding. Every matmul has the same number of rows, whatever is in them: so a sentence
gets the same bits in any company, in any lane.

A boundary is the same in every sentence, and so is the state of who has read it: sentences start
from there, and lanes read words only.

Shapes: S steps, B lanes, N distinct words, T words in all, D width of one direction, L LSTM layers.
"""

import math
from bisect import bisect, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from elmore.embed import sizes
from elmore.embed.driven import DrivenWords
from elmore.embed.recorded import Recorded
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
    needed = max(*lengths, -(-sum(lengths) // lanes))
    while (places := _fit(lengths, lanes, needed)) is None:
        needed += max(1, needed // 100)
    steps = at_once * -(-needed // at_once)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    forward = np.full((steps, lanes), IDLE, dtype=np.int64)
    backward = np.full((steps, lanes), IDLE, dtype=np.int64)
    starts = np.zeros((steps, lanes), dtype=bool)
    for number, (step, lane) in enumerate(places):
        tokens = np.arange(offsets[number], offsets[number + 1])
        forward[step : step + len(tokens), lane] = tokens
        backward[step : step + len(tokens), lane] = tokens[::-1]
        starts[step, lane] = True
    return Plan(forward, backward, starts)


def _fit(lengths: Sequence[int], lanes: int, steps: int) -> list[tuple[int, int]] | None:
    """Give each sentence a step and a lane: longest first, each where it leaves the least room."""
    places = [(0, 0)] * len(lengths)
    rooms = [(steps, lane) for lane in range(lanes)]
    for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        least = bisect(rooms, (lengths[number], -1))
        if least == lanes:
            return None
        room, lane = rooms.pop(least)
        places[number] = steps - room, lane
        insort(rooms, (room - lengths[number], lane))
    return places


def after_boundary(
    model: BiLM, begin: Float[Tensor, " D"], end: Float[Tensor, " D"], start: BiLMState
) -> BiLMState:
    """Give the state of one sentence once each direction has read the boundary it begins with."""
    alone = torch.ones(1, 1, dtype=torch.bool, device=begin.device)
    ends = [
        model.read(direction, boundary[None, None], alone, start.of(direction))[1]
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
    """
    lanes = num_lanes(max(lengths), model.config.lstm.cell_dim, words.device)
    at_once = num_steps(lanes, words.device)
    plan_ = plan(lengths, lanes, at_once)
    width = words.shape[1]
    layers = words.new_empty(model.config.num_layers, len(text), 2 * width)
    layers[0] = words[_tensor(text, words)].repeat(1, 2)
    fresh = BiLMState(*(part.expand(-1, -1, lanes, -1) for part in start))
    for direction, grid in ((FORWARD, plan_.forward), (BACKWARD, plan_.backward)):
        half = slice(direction * width, (direction + 1) * width)
        driven = DrivenWords(model, direction, words, text, at_once=at_once * lanes)
        states = anew = fresh.of(direction)
        for step in range(0, len(grid), at_once):
            places = grid[step : step + at_once]
            busy = places != IDLE
            # Who is idle beside others reads something, and nobody looks.
            inputs = driven(text[places])
            mask = _tensor(busy.any(axis=1), words).expand(lanes, -1)
            starts = _tensor(plan_.starts[step : step + at_once].T.copy(), words)
            outputs, states = read(direction, inputs, mask, states, starts, anew)
            where, taken = _tensor(places[busy], words), _tensor(busy, words)
            for number, output in enumerate(outputs, start=1):
                layers[number, where, half] = output.transpose(0, 1)[taken]
    return layers


def _tensor(array: np.ndarray, like: Tensor) -> Tensor:
    """Send an array to where `like` is; a GPU fetches it when it gets there."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else tensor
