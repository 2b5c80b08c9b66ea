"""Pack sequences of different lengths into a rectangle of rows and time steps, without torch.

Each row reads one sequence after another and resets its state where the next begins, so almost
nothing is padding. Sequences are placed by best-fit decreasing: the longest first, each into the
row where it leaves the fewest steps free.

Shapes: S steps, B rows, n sequences.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

IDLE = -1


class PackedPlan(NamedTuple):
    """The position in the text that each row reads at each step, `IDLE` for none."""

    forward: Int[np.ndarray, "S B"]
    backward: Int[np.ndarray, "S B"]
    """The same cells as `forward`, with each sequence reversed."""
    first_steps: Bool[np.ndarray, "S B"]
    """True at the first step of each sequence, in either direction."""


def pack_sequences(
    lengths: Sequence[int] | Int[np.ndarray, " n"], num_rows: int, multiple: int
) -> PackedPlan:
    """Place sequences, none of them empty, into few steps, rounded up to a multiple."""
    counts = np.asarray(lengths)
    needed = max(int(counts.max()), -(-int(counts.sum()) // num_rows))
    while (first_cells := best_fit_decreasing(counts, num_rows, needed)) is None:
        needed += max(1, needed // 100)
    steps = multiple * -(-needed // multiple)
    ends = np.cumsum(counts)
    positions = np.arange(ends[-1])
    within = positions - np.repeat(ends - counts, counts)
    cells = np.repeat(first_cells, counts) + within * num_rows
    forward, backward = np.full((2, steps * num_rows), IDLE, dtype=np.int64)
    forward[cells] = positions
    backward[cells] = np.repeat(ends - 1, counts) - within
    first_steps = np.zeros(steps * num_rows, dtype=bool)
    first_steps[first_cells] = True
    return PackedPlan(*(grid.reshape(steps, num_rows) for grid in (forward, backward, first_steps)))


def best_fit_decreasing(
    lengths: Int[np.ndarray, " n"], num_rows: int, num_steps: int
) -> Int[np.ndarray, " n"] | None:
    """Return the first cell (step * num_rows + row) of each sequence; None if they do not fit."""
    # The free steps of a row and its number are one integer, which is quicker to compare than two.
    free = list(range(num_steps * num_rows, num_steps * num_rows + num_rows))
    order = np.argsort(-lengths, kind="stable")
    taken = []
    for size in (lengths[order] * num_rows).tolist():
        tightest = bisect_left(free, size)
        if tightest == num_rows:
            return None
        best = free.pop(tightest)
        taken.append(best)
        insort(free, best - size)
    steps_left, row = np.divmod(taken, num_rows)
    first_cells = np.empty(len(lengths), dtype=np.int64)
    first_cells[order] = (num_steps - steps_left) * num_rows + row
    return first_cells
