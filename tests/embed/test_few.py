"""A few sentences at a time get the vectors that each would get alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import elmore
from elmore.embed.few import Few
from tests.foreign import bilm_options, bilm_weights, write_bilm

texts = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["the", "bank", "of", "naïve", "x" * 60, "日本"]), max_size=9),
        st.sampled_from(["average", "all", "top", 0, 1]),
    ),
    max_size=24,
)


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    settings = bilm_options(dim=40, projection_dim=16)
    weights = bilm_weights(settings, np.random.default_rng(0))
    return elmore.load(*write_bilm(tmp_path_factory.mktemp("model"), settings, weights))


@given(texts)
@settings(max_examples=15, deadline=None)
def test_a_batch_gives_each_text_its_own_vectors_of_its_own_layers(elmo, asked):
    few = Few(elmo)
    for _ in range(2):  # the second time its words are known
        for (words, layers), found in zip(asked, few.embed(asked), strict=True):
            expected = elmo.embed([words], layers=layers)[0].vectors
            assert found.shape == expected.shape
            assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_long_text_among_short_ones_changes_nothing(elmo):
    asked = [(["bank"] * length, "average") for length in (300, 1, 2, 3)]
    for (words, _), found in zip(asked, Few(elmo).embed(asked), strict=True):
        assert_allclose(found, elmo.embed([words])[0].vectors, rtol=0, atol=1e-5)
