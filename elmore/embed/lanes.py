"""Many sentences through the LSTMs at a fixed number of rows: lanes.

Each lane reads one sentence after another and starts each with a fresh state, so that almost
nothing is padding. Every matmul has the same number of rows, whatever is in them: so a sentence
gets the same bits in any company, in any lane.

Shapes: S steps, B lanes, T tokens in all, D width of one direction, L LSTM layers.
"""

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from elmore.model.bilm import BACKWARD, FORWARD, BiLM, BiLMState

IDLE = -1
_VECTORS = 64  # elements: what torch takes at once on any CPU divides it
STEPS = 8  # steps at a time: bounds the memory of the gates, changes no value
MOST, MOST_ON_GPU, FEWEST = 96, 512, 4  # lanes
SHORT = 128  # tokens: up to here a sentence shares most lanes, from here on fewer and fewer


class Plan(NamedTuple):
    """Which token each lane reads at each step, `IDLE` for none; the way back is the mirror.

    A direction does not read the boundary that it ends with: nothing comes after it.
    """

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
    doublings = max(0, math.ceil(math.log2(length / SHORT)))
    if device.type != "cpu":
        return max(FEWEST, MOST_ON_GPU >> doublings)
    return even_rows(max(FEWEST, MOST >> doublings), cell_dim)


def plan(lengths: Sequence[int], lanes: int) -> Plan:
    """Deal sentences out, longest first, each to the lane that is free first."""
    ends = [(0, lane) for lane in range(lanes)]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = []
    for number in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        end, lane = heapq.heappop(ends)
        places.append((number, end, lane))
        heapq.heappush(ends, (end + lengths[number] - 1, lane))
    steps = STEPS * -(-max(ends)[0] // STEPS)
    forward = np.full((steps, lanes), IDLE, dtype=np.int64)
    backward = np.full((steps, lanes), IDLE, dtype=np.int64)
    starts = np.zeros((steps, lanes), dtype=bool)
    for number, step, lane in places:
        tokens = np.arange(offsets[number], offsets[number + 1])
        forward[step : step + len(tokens) - 1, lane] = tokens[:-1]
        backward[step : step + len(tokens) - 1, lane] = tokens[:0:-1]
        starts[step, lane] = True
    return Plan(forward, backward, starts)


def run(
    model: BiLM, vectors: Float[Tensor, "T D"], lengths: Sequence[int], start: BiLMState
) -> Float[Tensor, "L+1 T 2*D"]:
    """Give every layer of sentences that stand one after another in `vectors`.

    Each has its boundaries, whose own layers are left unfinished. `start` is the state of one
    sentence. All of them must share their number of lanes.
    """
    lanes = num_lanes(max(lengths), model.config.lstm.cell_dim, vectors.device)
    plan_ = plan(lengths, lanes)
    width = vectors.shape[1]
    layers = vectors.new_empty(model.config.num_layers, len(vectors), 2 * width)
    layers[0, :, :width] = layers[0, :, width:] = vectors
    fresh = BiLMState(*(part.expand(-1, -1, lanes, -1) for part in start))
    for direction, grid in ((FORWARD, plan_.forward), (BACKWARD, plan_.backward)):
        half = slice(direction * width, (direction + 1) * width)
        states = anew = fresh.of(direction)
        for step in range(0, len(grid), STEPS):
            tokens = torch.from_numpy(grid[step : step + STEPS].T.copy()).to(vectors.device)
            starts = torch.from_numpy(plan_.starts[step : step + STEPS].T.copy()).to(vectors.device)
            mask = tokens != IDLE
            inputs = vectors[tokens.clamp(min=0)]  # (B, STEPS, D)
            outputs, states = model.read(direction, inputs, mask, states, starts, anew)
            where = tokens[mask]
            for number, output in enumerate(outputs, start=1):
                layers[number, where, half] = output[mask]
    return layers
