"""The same sentence gives the same vector: alone, in any batch, in any order, after anything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import elmore
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm
from tests.support.sweeps import pick

EXACT = {"rtol": 0, "atol": 1e-5}
sentences = st.lists(
    st.lists(st.sampled_from(["the", "bank", "of", "naïve", "x" * 60, "日本"]), max_size=12),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    settings = bilm_options(dim=40, projection_dim=16)
    weights = bilm_weights(settings, np.random.default_rng(0))
    return elmore.load(*write_bilm(tmp_path_factory.mktemp("model"), settings, weights))


@given(sentences, st.randoms(), st.integers(2, 60))
@settings(max_examples=pick(12, 60))
def test_neighbours_order_batch_size_and_padding_change_nothing(elmo, texts, random, budget):
    alone = [elmo.embed([text], layers="all")[0].vectors for text in texts]
    order = list(range(len(texts)))
    random.shuffle(order)
    small = elmore.Embedder(elmo.bundle, token_budget=budget)
    together = small.embed([texts[i] for i in order], layers="all")
    for i, sentence in zip(order, together, strict=True):
        assert sentence.tokens == texts[i]
        assert sentence.vectors.tobytes() == alone[i].tobytes()


def test_no_state_survives_a_call(elmo):
    text = [["the", "bank", "of", "the", "river"]]
    first = elmo.embed(text)[0].vectors
    elmo.embed([["something", "else"]] * 3)
    np.testing.assert_array_equal(elmo.embed(text)[0].vectors, first)


def test_the_warm_state_changes_vectors_and_is_always_the_same(elmo):
    text = [["the", "bank"], ["of", "the", "bank"]]
    warm = elmore.Embedder(elmo.bundle, initial_state="warm")
    cold, first, second = elmo.embed(text), warm.embed(text), warm.embed(text[::-1])[::-1]
    for a, b, c in zip(cold, first, second, strict=True):
        assert np.abs(a.vectors - b.vectors).max() > 1e-4
        assert b.vectors.tobytes() == c.vectors.tobytes()


def test_only_stateful_carries_the_state(elmo):
    remembering = elmore.Embedder(elmo.bundle, stateful=True)
    text = [["the", "bank"]]
    first, second = (remembering.embed(text)[0].vectors for _ in range(2))
    assert_allclose(first, elmo.embed(text)[0].vectors, **EXACT)
    assert np.abs(first - second).max() > 1e-4


def test_an_empty_text_has_no_vectors(elmo):
    empty, blank = elmo.embed([[], "  \n"])
    assert empty.vectors.shape == blank.vectors.shape == (0, elmo.width)
    assert elmo.embed([[]], layers="all")[0].vectors.shape == (elmo.num_layers, 0, elmo.width)
    assert elmo.embed([]) == []
