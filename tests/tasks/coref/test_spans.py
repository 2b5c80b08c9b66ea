import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.coref.spans import candidate_spans, clusters_from_antecedents, prune_spans


def test_candidates_end_in_their_sentence():
    allowed = candidate_spans([3, 1], 2)
    spans = [(start, start + width) for start, width in np.argwhere(allowed).tolist()]
    assert spans == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (3, 3)]


def test_no_sentence_has_no_candidates():
    assert candidate_spans([], 3).shape == (0, 3)


def cross(one, other):
    (a, b), (c, d) = sorted([one, other])
    return a < c <= b < d


def naive(scores, allowed, number):
    """Take the best that crosses nothing taken, again and again."""
    spans = [(s, s + w) for s, w in np.argwhere(allowed).tolist()]
    kept = []
    for span in sorted(spans, key=lambda span: -scores[span[0], span[1] - span[0]]):
        if len(kept) < number and not any(cross(span, other) for other in kept):
            kept.append(span)
    return sorted(kept)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 20),
    st.integers(0, 10_000),
)
def test_pruning_takes_the_best_that_do_not_cross(lengths, max_width, number, seed):
    draws = np.random.default_rng(seed)
    allowed = candidate_spans(lengths, max_width)
    scores = draws.integers(-3, 4, allowed.shape).astype(np.float32)  # many are equal
    assert prune_spans(scores, allowed, number) == naive(scores, allowed, number)


def test_of_two_crossing_spans_the_better_is_kept():
    scores = np.zeros((4, 3), np.float32)
    scores[0, 2], scores[1, 2] = 1.0, 2.0  # 0..2 and 1..3
    kept = prune_spans(scores, candidate_spans([4], 3), 100)
    assert (1, 3) in kept
    assert (0, 2) not in kept
    assert not any(cross(one, other) for one in kept for other in kept)


def joined(antecedents):
    """Join sets until nothing changes."""
    sets = [{i} | ({a} if a >= 0 else set()) for i, a in enumerate(antecedents)]
    for _ in antecedents:
        for one in sets:
            for other in sets:
                if one & other:
                    one |= other
                    other |= one
    return sorted({tuple(sorted(result)) for result in sets if len(result) > 1})


@given(st.lists(st.integers(0, 8), max_size=9))
def test_clusters_are_those_of_a_naive_linker(draws):
    antecedents = [draw % (index + 1) - 1 for index, draw in enumerate(draws)]
    result = clusters_from_antecedents(antecedents)
    assert sorted(tuple(sorted(cluster)) for cluster in result) == joined(antecedents)
    assert all(cluster == sorted(cluster) for cluster in result)
