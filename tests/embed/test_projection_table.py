"""Tables of gate inputs: which words of a packed batch have a row in them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmore.embed.device import HOST
from elmore.embed.projection_table import DistinctWords, _TablePlan


@given(st.data(), st.integers(1, 9), st.integers(0, 9))
def test_every_row_of_a_table_is_the_word_that_a_step_reads(data, num_words, max_frequent):
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 3)))
    size = int(np.prod(shape))
    words = data.draw(st.lists(st.integers(0, num_words - 1), min_size=size, max_size=size))
    grid, size = np.array(words).reshape(shape), data.draw(st.integers(1, 4))
    plan = _TablePlan.create(grid, size, num_words, max_frequent)
    assert len(plan.frequent) <= max_frequent
    assert plan.rows.shape == shape
    for number, rare in enumerate(plan.rare):
        steps = slice(number * size, (number + 1) * size)  # the last ones may be fewer
        chunk, table = grid[steps], np.concatenate([plan.frequent, rare])
        assert np.array_equal(table[plan.rows[steps]], chunk)
        assert set(rare.tolist()) <= set(chunk.reshape(-1).tolist()) - set(plan.frequent.tolist())


@given(st.lists(st.integers(0, 9), min_size=1))
def test_the_words_of_a_group_are_those_of_its_text(ids):
    words, vectors = list("abcdefghij"), np.arange(10.0)[:, None]
    group, text = DistinctWords(words, vectors).used_in(np.array(ids), HOST)
    assert sorted(group.words) == sorted({words[each] for each in ids})
    assert [group.words[each] for each in text] == [words[each] for each in ids]
    assert group.vectors[text, 0].tolist() == ids
