"""Sequences packed into rows, and texts split into windows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmore.embed.packing import IDLE, pack_sequences, split_windows
from elmore.embed.tokenized import TokenizedText

ROWS = 96
lengths = st.lists(st.integers(0, 12), max_size=60)


@given(lengths, st.integers(1, 60))
def test_every_text_comes_once_in_order_and_the_budget_holds(sizes, budget):
    texts = [TokenizedText([["word"] * size], None) for size in sizes]
    result = list(split_windows(texts, budget))
    assert [text for window in result for text in window] == texts
    for window in result:
        assert len(window) <= 1 or sum(text.num_tokens for text in window) <= budget


def test_the_last_two_windows_share_what_is_left():
    texts = [TokenizedText([["word"] * 8], None)] * 21  # of 10 tokens each
    assert [len(window) for window in split_windows(texts, 100)] == [10, 6, 5]


def test_a_window_is_yielded_while_a_later_one_is_read():
    taken = []

    def texts():
        for number in range(100):
            taken.append(number)
            yield TokenizedText([["word"] * 8], None)

    assert len(next(split_windows(texts(), 100))) == 10
    assert len(taken) == 21


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
