"""The measures of change, from their definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import distance

from elmore.probe.change.measures import (
    jensen_shannon,
    measure_moves,
    measure_scores,
    pairwise_distance,
    prototype_distance,
)

NO_CLUSTERS = np.zeros(12, int)


def cosine_distances(a, b):
    return np.array([[distance.cosine(x, y) for y in b] for x in a])


@pytest.fixture
def periods(rng):
    return rng.normal(size=(12, 5)) + 1, rng.normal(size=(12, 5))


def test_apd_is_the_mean_distance_of_all_pairs_of_both_periods(periods):
    old, new = periods
    scores = measure_scores(old, new, NO_CLUSTERS, NO_CLUSTERS)
    assert scores.apd.value == pytest.approx(cosine_distances(old, new).mean())
    within = [distance.cosine(a, b) for a, b in itertools.combinations(old, 2)]
    assert scores.within_old == pytest.approx(np.mean(within))


def test_prt_is_the_distance_of_the_mean_unit_vectors(periods):
    old, new = periods
    means = [np.mean([row / np.linalg.norm(row) for row in period], axis=0) for period in periods]
    scores = measure_scores(old, new, NO_CLUSTERS, NO_CLUSTERS)
    assert scores.prt.value == pytest.approx(distance.cosine(*means))


counts = st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any)


@given(counts, counts)
def test_jsd_is_the_jensen_shannon_distance_in_bits(one, two):
    p, q = np.array(one) / sum(one), np.array(two) / sum(two)
    assert jensen_shannon(p, q) == pytest.approx(distance.jensenshannon(p, q, 2), abs=1e-7)


def test_sense_clusters_are_compared_by_their_frequencies(periods):
    old_clusters, new_clusters = np.array([0] * 12), np.array([0] * 6 + [1] * 6)
    scores = measure_scores(*periods, old_clusters, new_clusters)
    assert scores.jsd.value == pytest.approx(distance.jensenshannon([1, 0], [0.5, 0.5], 2))


def test_intervals_contain_the_value_and_narrow_with_more_uses(rng):
    sizes = {}
    for size in (10, 160):
        clusters = rng.integers(2, size=size)
        old, new = rng.normal(size=(2, size, 8)) + 1
        scores = measure_scores(old, new, clusters, clusters[::-1])
        for one in (scores.apd, scores.prt, scores.jsd):
            assert 0 <= one.low <= one.value <= one.high
        sizes[size] = scores.apd.high - scores.apd.low
    assert sizes[160] < sizes[10] / 2


def test_the_interval_of_apd_covers_the_true_distance_most_of_the_time(rng):
    true = pairwise_distance(*(unit(rng, 20_000, shift).mean(axis=0) for shift in (0.5, 1.5)))
    inside = 0
    for seed in range(100):
        old, new = unit(rng, 25, 0.5), unit(rng, 25, 1.5)
        apd = measure_scores(old, new, np.zeros(25, int), np.zeros(25, int), seed=seed).apd
        inside += apd.low <= true <= apd.high
    assert inside >= 85


def unit(rng, size, shift):
    vectors = rng.normal(size=(size, 6)) + np.array([1, shift, 0, 0, 0, 0])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_p_is_small_for_a_change_and_not_for_two_halves_of_the_same(rng):
    clusters = np.zeros(30, int)
    old, same, new = unit(rng, 30, 0), unit(rng, 30, 0), unit(rng, 30, 3)
    assert measure_scores(old, new, clusters, clusters).p < 0.01
    assert measure_scores(old, same, clusters, clusters).p > 0.05


def test_p_counts_the_division_itself_whatever_the_rounding(rng):
    for _ in range(30):
        uses = (rng.normal(size=(4, 512)) + 3).astype(np.float32)
        clusters = np.array([0, 1])
        single, double = (
            measure_scores(each[:2], each[2:], clusters, clusters).p
            for each in (uses, uses.astype(np.float64))
        )
        assert single == double >= 0.3  # two of six divisions are this one


def test_the_use_that_moved_is_the_one_unlike_the_other_period():
    old = np.array([[1.0, 0.0], [1.0, 0.1], [0.9, 0.0]])
    new = np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
    old_moves, new_moves = measure_moves(old, new)
    distances = cosine_distances(new, old).mean(axis=1)
    own = [np.mean([distance.cosine(new[i], new[j]) for j in range(3) if j != i]) for i in range(3)]
    assert new_moves == pytest.approx(distances - own)
    assert new_moves.argmin() == 0
    assert (old_moves > new_moves[0]).all()


def test_equal_uses_have_not_moved():
    same = np.ones((4, 3), np.float32)
    scores = measure_scores(same, same, np.zeros(4, int), np.zeros(4, int))
    assert scores.apd.value == pytest.approx(0, abs=1e-6)
    assert prototype_distance(same[0], same[0]) == pytest.approx(0, abs=1e-6)
    assert scores.p == 1.0


def test_the_same_seed_gives_the_same_intervals(periods):
    first, second = (measure_scores(*periods, NO_CLUSTERS, NO_CLUSTERS, seed=3) for _ in range(2))
    assert first == second
