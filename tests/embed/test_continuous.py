"""Texts that come and go get the vectors that each would get alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import elmore
from elmore.embed import device, word_tables
from elmore.embed.continuous import ContinuousBatcher
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm
from tests.support.sweeps import pick

words = st.lists(st.sampled_from(["the", "bank", "of", "naïve", "x" * 60, "日本"]), max_size=19)
MOST = device.CPU.max_concurrent
arrivals = st.lists(st.lists(words, max_size=12), max_size=6)


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    settings = bilm_options(dim=40, projection_dim=16)
    weights = bilm_weights(settings, np.random.default_rng(0))
    return elmore.load(*write_bilm(tmp_path_factory.mktemp("model"), settings, weights))


def finish(batch, rows, turns=1000):
    while any(row.num_left for row in rows):
        assert (turns := turns - 1)
        batch.step()


def assert_read(elmo, texts, rows):
    for text, row in zip(texts, rows, strict=True):
        expected = elmo.embed([text], layers="all")[0].vectors
        assert row.layers.shape == expected.shape
        assert_allclose(row.layers, expected, rtol=0, atol=1e-5)


@given(arrivals)
@settings(max_examples=pick(6, 15), deadline=None)
def test_a_sequence_added_to_a_running_batch_gets_its_own_vectors(elmo, asked):
    batch, rows = ContinuousBatcher(elmo.runtime), []
    for texts in asked:
        rows += batch.add([texts])[0]
        batch.step()
    finish(batch, rows)
    assert_read(elmo, [text for texts in asked for text in texts], rows)


@pytest.mark.parametrize("number", [1, 8, 9, MOST, MOST + 1, 120])
def test_few_and_many_rows_change_nothing(elmo, number):
    texts = [["bank", "of"] * (1 + index % 7) for index in range(number)]
    batch = ContinuousBatcher(elmo.runtime)
    (rows,) = batch.add([texts])
    finish(batch, rows)
    assert_read(elmo, texts, rows)


def test_a_short_text_does_not_wait_for_the_end_of_a_long_one(elmo):
    batch = ContinuousBatcher(elmo.runtime)
    ((long,),) = batch.add([[["bank"] * 300]])
    batch.step()
    ((short,),) = batch.add([[["the", "bank"]]])
    finish(batch, [short])
    assert long.num_left > 250
    finish(batch, [long])
    assert_read(elmo, [["bank"] * 300, ["the", "bank"]], [long, short])


def test_the_first_requests_run_while_later_ones_wait(elmo):
    batch = ContinuousBatcher(elmo.runtime)
    (rows,) = batch.add([[["bank"] * 40] * (MOST + 12)])
    batch.step()
    assert [row.num_done > 0 for row in rows] == [True] * MOST + [False] * 12


def test_a_row_whose_text_ends_continues_with_the_next_waiting_one(elmo):
    texts = [["bank"] * (3 if index == 5 else 40) for index in range(MOST)]
    texts += [["of", "the"], ["the", "naïve", "bank"] * 3, ["of"] * 9]
    batch = ContinuousBatcher(elmo.runtime)
    (rows,) = batch.add([texts])
    batch.step()  # eight steps, of which the sixth lane has five left, and then three
    assert [row.num_done for row in rows[MOST:]] == [2, 3, 0]
    assert rows[5].num_left == rows[MOST].num_left == 0
    finish(batch, rows)
    assert_read(elmo, texts, rows)


def test_canceling_a_waiting_sequence_does_not_affect_others(elmo):
    texts = [["bank", "of", "the"] * (1 + index % 5) for index in range(70)]
    batch = ContinuousBatcher(elmo.runtime)
    (rows,) = batch.add([texts])
    batch.step()
    batch.cancel([rows[3], rows[40], rows[69]])
    stay = [index for index in range(70) if index not in (3, 40, 69)]
    finish(batch, [rows[index] for index in stay])
    assert_read(elmo, [texts[index] for index in stay], [rows[index] for index in stay])


def test_more_words_than_are_cached_change_nothing(elmo, monkeypatch):
    monkeypatch.setattr(device, "CPU", device.CPU._replace(max_concurrent=2, chunk_steps=2))
    elmo = elmore.Embedder(elmo.bundle, device="cpu", cache_megabytes=0.01)
    texts = [[f"word{index}{number}" for number in range(9)] for index in range(5)]
    batch = ContinuousBatcher(elmo.runtime)
    (rows,) = batch.add([texts])
    finish(batch, rows)
    assert_read(elmo, texts, rows)


def test_a_canceled_sequence_stops_and_the_others_continue(elmo):
    texts = [["the"] * 30, ["bank"] * 30, ["of"] * 30]
    batch = ContinuousBatcher(elmo.runtime)
    (rows,) = batch.add([texts])
    batch.step()
    batch.cancel([rows[1]])
    read = rows[1].num_done
    finish(batch, [rows[0], rows[2]])
    assert rows[1].num_done == read < 30
    assert_read(elmo, [texts[0], texts[2]], [rows[0], rows[2]])
    batch.cancel(rows)  # nobody is there any more


def test_empty_texts_and_requests_are_supported(elmo):
    batch = ContinuousBatcher(elmo.runtime)
    batch.step()
    assert batch.add([]) == []
    assert batch.add([[]]) == [[]]
    (rows,) = batch.add([[[], []]])
    batch.step()
    assert_read(elmo, [[], []], rows)


def test_a_later_request_does_not_wait_for_all_texts_of_a_large_one(elmo):
    batch = ContinuousBatcher(elmo.runtime)
    (many,) = batch.add([[["bank"] * 8] * (4 * MOST)])
    batch.step()
    (few, others) = batch.add([[["the", "bank"]], [["of"] * 8] * 2])
    finish(batch, few)
    assert sum(row.num_done > 0 for row in many) <= 2 * MOST
    finish(batch, [*many, *others])
    assert_read(elmo, [["of"] * 8] * 2, others)


def test_a_failure_half_way_leaves_existing_files_intact(elmo, monkeypatch):
    texts = [["bank", "of", "the"] * 6, ["naïve"] * 20, ["the", "日本"] * 9]
    batch = ContinuousBatcher(elmo.runtime)
    (rows,) = batch.add([texts])
    batch.step()
    for name in ("lookup", "insert"):
        with monkeypatch.context() as patched:
            patched.setattr(word_tables.LRUTable, name, no_memory)
            with pytest.raises(MemoryError):
                batch.add([[["new"]]])
    ((new,),) = batch.add([[["new", "bank"]]])
    failing = (
        (word_tables.LRUTable, "lookup", no_memory),
        (elmo.runtime, "stacks", [no_memory] * 2),
    )
    for where, name, failure in failing:
        with monkeypatch.context() as patched:
            patched.setattr(where, name, failure)
            with pytest.raises(MemoryError):
                batch.step()
    batch.cancel([rows[1]])
    finish(batch, [rows[0], rows[2], new])
    assert_read(elmo, [texts[0], texts[2], ["new", "bank"]], [rows[0], rows[2], new])


def no_memory(*_, **__):
    raise MemoryError


def test_autocast_changes_no_bit_of_a_continuous_batch(elmo):
    def run():
        batch = ContinuousBatcher(elmore.Embedder(elmo.bundle, device="cpu").runtime)
        ((row,),) = batch.add([[["the", "bank"] * 9]])
        finish(batch, [row])
        return row.layers

    expected = run()
    with torch.autocast("cpu", torch.bfloat16):
        assert np.array_equal(run(), expected)
