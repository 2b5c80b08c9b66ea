"""Sequences packed into rows."""

import numpy as np

from elmore.embed.packing import IDLE, pack_sequences

ROWS = 96


def test_a_plan_reads_each_word_once_in_either_direction():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 60, 400).tolist()
    plan = pack_sequences(lengths, ROWS, 8)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    for grid in (plan.forward, plan.backward):
        assert sorted(grid[grid != IDLE]) == [*range(sum(lengths))]
    for row in range(ROWS):  # one after another: up by one ahead, down by one behind
        starts = plan.first_steps[1:, row]
        for grid, step in ((plan.forward, 1), (plan.backward, -1)):
            column = grid[:, row]
            within = ~starts & (column[1:] != IDLE)
            assert (np.diff(column)[within] == step).all()
    assert plan.first_steps.sum() == len(lengths)
    active = (plan.forward != IDLE).any(axis=1).sum()
    assert sum(lengths) / (active * ROWS) > 0.98
    assert sorted(plan.forward[plan.first_steps]) == offsets[:-1].tolist()
    assert sorted(plan.backward[plan.first_steps]) == (offsets[1:] - 1).tolist()
