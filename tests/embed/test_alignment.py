from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from elmore.embed.alignment import pool_to_spans
from elmore.errors import DataError
from elmore.text.tokenizers import penn, whitespace

TEXT = "I can't go"
OFFSETS = [(0, 1), (2, 4), (4, 7), (8, 10)]  # I ca n't go
VECTORS = np.array([[1, 0], [2, 0], [0, 5], [7, 7]], np.float32)
STRINGS = st.text(st.sampled_from("ab .,'"), max_size=20)


def vectors_for(offsets, seed=0):
    return np.random.default_rng(seed).normal(size=(2, len(offsets), 3)).astype(np.float32)


@st.composite
def strings_and_spans(draw):
    text = draw(STRINGS)
    ends = st.integers(0, len(text))
    spans = draw(st.lists(st.tuples(ends, ends).map(sorted).map(tuple), max_size=8))
    return text, spans


def by_definition(offsets, vectors, spans):
    result = np.zeros((*vectors.shape[:-2], len(spans), vectors.shape[-1]))
    for i, (start, end) in enumerate(spans):
        shared = [len({*range(start, end)} & {*range(*offset)}) for offset in offsets]
        if sum(shared):
            result[..., i, :] = np.average(vectors, axis=-2, weights=shared)
    return result


def test_a_span_over_two_tokens_is_their_mean_by_characters():
    spans = [(0, 1), (2, 7), (8, 10)]  # I can't go
    assert_allclose(pool_to_spans(OFFSETS, VECTORS, spans), [[1, 0], [0.8, 3], [7, 7]], rtol=1e-6)


def test_a_part_of_a_token_is_the_token():
    assert_array_equal(pool_to_spans(OFFSETS, VECTORS, [(5, 6), (9, 10)]), VECTORS[[2, 3]])


def test_spans_that_meet_no_token_are_zeros():
    spans = [(1, 2), (7, 8), (3, 3), (10, 12), (0, 0)]
    assert_array_equal(pool_to_spans(OFFSETS, VECTORS, spans), np.zeros((5, 2)))


def test_spans_may_overlap_and_come_in_any_order():
    spans = [(8, 10), (0, 10), (0, 1), (0, 10)]
    whole = (1 * VECTORS[0] + 2 * VECTORS[1] + 3 * VECTORS[2] + 2 * VECTORS[3]) / 8
    expected = [VECTORS[3], whole, VECTORS[0], whole]
    assert_allclose(pool_to_spans(OFFSETS, VECTORS, spans), expected, rtol=1e-6)


def test_every_layer_is_aligned_likewise():
    stack = np.stack([VECTORS, 2 * VECTORS, -VECTORS])
    result = pool_to_spans(OFFSETS, stack, [(2, 7)])
    assert result.shape == (3, 1, 2)
    assert_allclose(result[:, 0], [[0.8, 3], [1.6, 6], [-0.8, -3]], rtol=1e-6)


def test_no_tokens_and_no_spans_are_fine():
    assert_array_equal(pool_to_spans([], VECTORS[:0], [(0, 3)]), np.zeros((1, 2)))
    assert pool_to_spans(OFFSETS, VECTORS, []).shape == (0, 2)
    assert pool_to_spans([], VECTORS[:0], []).shape == (0, 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_type_of_the_vectors_is_kept(dtype):
    assert pool_to_spans(OFFSETS, VECTORS.astype(dtype), [(0, 1)]).dtype == dtype


@given(STRINGS)
def test_the_same_tokens_have_the_same_vectors(text):
    offsets = penn(text).offsets
    vectors = vectors_for(offsets)
    assert_array_equal(pool_to_spans(offsets, vectors, offsets), vectors)


@given(strings_and_spans())
def test_any_spans_are_what_the_definition_says(text_and_spans):
    text, spans = text_and_spans
    offsets = penn(text).offsets
    vectors = vectors_for(offsets)
    result = pool_to_spans(offsets, vectors, spans, length=len(text))
    assert_allclose(result, by_definition(offsets, vectors, spans), atol=1e-6)


@given(STRINGS, st.lists(st.integers(0, 20), max_size=6))
def test_nothing_is_lost_when_a_string_is_cut_elsewhere(text, cuts):
    """Over any partition, vectors times the characters that they stand for have one sum."""
    offsets = penn(text).offsets
    vectors = vectors_for(offsets).astype(np.float64)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = list(pairwise(edges))
    inked = [sum(not letter.isspace() for letter in text[a:b]) for a, b in parts]
    sizes = [end - start for start, end in offsets]
    mass = np.einsum("s,lsd->ld", inked, pool_to_spans(offsets, vectors, parts))
    assert_allclose(mass, np.einsum("t,ltd->ld", sizes, vectors), atol=1e-9)


def test_long_texts_do_not_take_long():
    text = "word, " * 20000
    offsets, spans = penn(text).offsets, whitespace(text).offsets
    result = pool_to_spans(offsets, np.ones((len(offsets), 4), np.float32), spans)
    assert_allclose(result, np.ones((20000, 4)))


@pytest.mark.parametrize(
    ("span", "match"),
    [
        ((4, 3), r"span 1 \(4, 3\) ends before it starts"),
        ((-2, 1), r"span 1 \(-2, 1\) starts before the string"),
        ((9, 11), r"span 1 \(9, 11\) ends after the string, which has 10 characters"),
    ],
)
def test_impossible_spans_are_named(span, match):
    with pytest.raises(DataError, match=match):
        pool_to_spans(OFFSETS, VECTORS, [(0, 1), span], length=len(TEXT))


@pytest.mark.parametrize("spans", [[(0.5, 1.0)], [0, 1], [(0, 1, 2)], [("a", "b")]])
def test_a_value_that_is_not_a_list_of_spans_is_refused(spans):
    with pytest.raises(DataError, match="pairs of whole numbers"):
        pool_to_spans(OFFSETS, VECTORS, spans)


def test_offsets_that_do_not_go_with_the_vectors_are_refused():
    with pytest.raises(DataError, match=r"3 offsets do not match vectors of shape \(4, 2\)"):
        pool_to_spans(OFFSETS[:3], VECTORS, [])
    with pytest.raises(DataError, match="must be ascending and not overlap"):
        pool_to_spans(OFFSETS[::-1], VECTORS, [])
