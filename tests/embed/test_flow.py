"""Texts that come and go get the vectors that each would get alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import elmore
from elmore.embed import kept, sizes
from elmore.embed.flow import Flow
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm
from tests.support.sweeps import pick

words = st.lists(st.sampled_from(["the", "bank", "of", "naïve", "x" * 60, "日本"]), max_size=19)
CROWD = sizes.CPU.crowd
arrivals = st.lists(st.lists(words, max_size=12), max_size=6)


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    settings = bilm_options(dim=40, projection_dim=16)
    weights = bilm_weights(settings, np.random.default_rng(0))
    return elmore.load(*write_bilm(tmp_path_factory.mktemp("model"), settings, weights))


def finish(flow, rows, turns=1000):
    while any(row.left for row in rows):
        assert (turns := turns - 1)
        flow.advance()


def assert_read(elmo, texts, rows):
    for text, row in zip(texts, rows, strict=True):
        expected = elmo.embed([text], layers="all")[0].vectors
        assert row.layers.shape == expected.shape
        assert_allclose(row.layers.numpy(), expected, rtol=0, atol=1e-5)


@given(arrivals)
@settings(max_examples=pick(6, 15), deadline=None)
def test_who_joins_while_others_are_read_gets_its_own_vectors(elmo, asked):
    flow, rows = Flow(elmo), []
    for texts in asked:
        rows += flow.join([texts])[0]
        flow.advance()
    finish(flow, rows)
    assert_read(elmo, [text for texts in asked for text in texts], rows)


@pytest.mark.parametrize("number", [1, 8, 9, CROWD, CROWD + 1, 120])
def test_few_and_many_rows_change_nothing(elmo, number):
    texts = [["bank", "of"] * (1 + place % 7) for place in range(number)]
    flow = Flow(elmo)
    (rows,) = flow.join([texts])
    finish(flow, rows)
    assert_read(elmo, texts, rows)


def test_a_short_text_does_not_wait_for_the_end_of_a_long_one(elmo):
    flow = Flow(elmo)
    ((long,),) = flow.join([[["bank"] * 300]])
    flow.advance()
    ((short,),) = flow.join([[["the", "bank"]]])
    finish(flow, [short])
    assert long.left > 250
    finish(flow, [long])
    assert_read(elmo, [["bank"] * 300, ["the", "bank"]], [long, short])


def test_the_first_come_are_read_while_others_wait(elmo):
    flow = Flow(elmo)
    (rows,) = flow.join([[["bank"] * 40] * (CROWD + 12)])
    flow.advance()
    assert [row.read > 0 for row in rows] == [True] * CROWD + [False] * 12


def test_a_lane_whose_text_ends_goes_on_with_the_next_that_waits(elmo):
    texts = [["bank"] * (3 if place == 5 else 40) for place in range(CROWD)]
    texts += [["of", "the"], ["the", "naïve", "bank"] * 3, ["of"] * 9]
    flow = Flow(elmo)
    (rows,) = flow.join([texts])
    flow.advance()  # eight steps, of which the sixth lane has five left, and then three
    assert [row.read for row in rows[CROWD:]] == [2, 3, 0]
    assert rows[5].left == rows[CROWD].left == 0
    finish(flow, rows)
    assert_read(elmo, texts, rows)


def test_who_leaves_a_crowd_takes_nobody_elses_place(elmo):
    texts = [["bank", "of", "the"] * (1 + place % 5) for place in range(70)]
    flow = Flow(elmo)
    (rows,) = flow.join([texts])
    flow.advance()
    flow.leave([rows[3], rows[40], rows[69]])
    stay = [place for place in range(70) if place not in (3, 40, 69)]
    finish(flow, [rows[place] for place in stay])
    assert_read(elmo, [texts[place] for place in stay], [rows[place] for place in stay])


def test_more_words_than_are_kept_change_nothing(elmo, monkeypatch):
    monkeypatch.setattr(sizes, "CPU", sizes.CPU._replace(room=0.0, crowd=2, steps=2))
    texts = [[f"word{place}{number}" for number in range(9)] for place in range(5)]
    flow = Flow(elmo)
    (rows,) = flow.join([texts])
    finish(flow, rows)
    assert_read(elmo, texts, rows)


def test_who_leaves_is_read_no_more_and_the_others_are(elmo):
    texts = [["the"] * 30, ["bank"] * 30, ["of"] * 30]
    flow = Flow(elmo)
    (rows,) = flow.join([texts])
    flow.advance()
    flow.leave([rows[1]])
    read = rows[1].read
    finish(flow, [rows[0], rows[2]])
    assert rows[1].read == read < 30
    assert_read(elmo, [texts[0], texts[2]], [rows[0], rows[2]])
    flow.leave(rows)  # nobody is there any more


def test_nothing_is_read_of_nothing(elmo):
    flow = Flow(elmo)
    flow.advance()
    assert flow.join([]) == []
    assert flow.join([[]]) == [[]]
    (rows,) = flow.join([[[], []]])
    flow.advance()
    assert_read(elmo, [[], []], rows)


def test_a_later_request_is_not_kept_behind_all_of_one_that_has_many(elmo):
    flow = Flow(elmo)
    (many,) = flow.join([[["bank"] * 8] * (4 * CROWD)])
    flow.advance()
    (few, others) = flow.join([[["the", "bank"]], [["of"] * 8] * 2])
    finish(flow, few)
    assert sum(row.read > 0 for row in many) <= 2 * CROWD
    finish(flow, [*many, *others])
    assert_read(elmo, [["of"] * 8] * 2, others)


def test_a_failure_half_way_spoils_nothing(elmo, monkeypatch):
    texts = [["bank", "of", "the"] * 6, ["naïve"] * 20, ["the", "日本"] * 9]
    flow = Flow(elmo)
    (rows,) = flow.join([texts])
    flow.advance()
    with monkeypatch.context() as patched:
        patched.setattr(kept, "sent", no_memory)
        with pytest.raises(MemoryError):
            flow.join([[["new"]]])
    with monkeypatch.context() as patched:
        patched.setattr(flow._driven._kept, "keep", no_memory)
        with pytest.raises(MemoryError):
            flow.join([[["new"]]])
    ((new,),) = flow.join([[["new", "bank"]]])
    flow._driven._kept = kept.Kept(flow._driven._kept.table)  # as if others had taken all its room
    for where, name in ((kept, "sent"), (flow._model, "run_direction")):
        with monkeypatch.context() as patched:
            patched.setattr(where, name, no_memory)
            with pytest.raises(MemoryError):
                flow.advance()
    flow.leave([rows[1]])
    finish(flow, [rows[0], rows[2], new])
    assert_read(elmo, [texts[0], texts[2], ["new", "bank"]], [rows[0], rows[2], new])


def no_memory(*_, **__):
    raise MemoryError
