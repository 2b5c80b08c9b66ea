"""Tables of gate inputs: which words of a packed batch have a row in them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmore.embed.projection_table import _TablePlan


@given(st.data(), st.integers(1, 9), st.integers(0, 9))
def test_every_row_of_a_table_is_the_word_that_a_step_reads(data, num_words, max_frequent):
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)))
    size = int(np.prod(shape))
    words = data.draw(st.lists(st.integers(0, num_words - 1), min_size=size, max_size=size))
    chunks = np.array(words).reshape(shape)
    plan = _TablePlan.create(chunks, num_words, max_frequent)
    assert len(plan.frequent) <= max_frequent
    for chunk, rare, rows in zip(chunks, plan.rare, plan.rows, strict=True):
        table = np.concatenate([plan.frequent, rare])
        assert np.array_equal(table[rows], chunk)
        assert set(rare.tolist()) <= set(chunk.reshape(-1).tolist()) - set(plan.frequent.tolist())


def test_a_table_has_no_words_of_other_groups():
    plan = _TablePlan.create(np.array([[[0], [2]]]), num_words=4, max_frequent=10)
    assert sorted(plan.frequent.tolist()) == [0, 2]
