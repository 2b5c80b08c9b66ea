"""Metrics against their definitions, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.probe.estimates import (
    choose_threshold,
    estimate_ratio,
    estimate_spearman,
    f_counts,
    generalized_average_precision,
    spearman,
)


def test_a_ratio_without_denominators_is_the_mean():
    found = estimate_ratio(np.array([True, False, True, True]))
    assert (found.score, found.n) == (0.75, 4)


def test_a_ratio_divides_the_sums():
    found = estimate_ratio(np.array([2, 0, 4]), np.array([4, 1, 5]))
    assert found.score == pytest.approx(6 / 10)


def test_a_ratio_of_nothing_is_zero():
    assert estimate_ratio(np.zeros(3), np.zeros(3)) == (0.0, 0.0, 0.0, 3)


def test_the_interval_of_an_accuracy_is_the_binomial_one():
    correct = np.arange(400) < 300  # the standard error is sqrt(0.75 * 0.25 / 400)
    found = estimate_ratio(correct)
    error = np.sqrt(0.75 * 0.25 / 400)
    assert found.low == pytest.approx(0.75 - 1.96 * error, abs=0.004)
    assert found.high == pytest.approx(0.75 + 1.96 * error, abs=0.004)


def test_the_same_seed_gives_the_same_interval(rng):
    values = rng.random(50)
    assert estimate_ratio(values, seed=3) == estimate_ratio(values, seed=3)
    assert estimate_ratio(values, seed=3).low != estimate_ratio(values, seed=4).low


def test_spearman_of_distinct_values_is_the_formula_of_rank_differences():
    a, b = np.array([10.0, 20, 30, 40, 50]), np.array([1.0, 3, 2, 5, 4])
    differences = np.array([0, 1, -1, 1, -1])
    expected = 1 - 6 * (differences**2).sum() / (5 * (25 - 1))
    assert spearman(a, b) == pytest.approx(expected)


def test_spearman_gives_ties_the_mean_of_their_ranks():
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5
    a, b = np.array([1.0, 7, 7, 9]), np.array([1.0, 2, 3, 4])
    assert spearman(a, b) == pytest.approx(4.5 / np.sqrt(4.5 * 5))


def test_spearman_with_a_constant_is_zero():
    assert spearman(np.ones(4), np.arange(4.0)) == 0


@given(st.lists(st.integers(-50, 50), min_size=3, max_size=12, unique=True))
def test_spearman_depends_on_the_order_alone(values):
    a = np.array(values, float)
    b = np.arange(len(a))[::-1].astype(float)
    assert spearman(a, b) == pytest.approx(spearman(np.exp(a / 10), b**3 + 2))
    assert spearman(a, a) == pytest.approx(1)
    assert spearman(a, -a) == pytest.approx(-1)


def test_the_interval_of_a_correlation_contains_it(rng):
    a = rng.normal(size=100)
    found = estimate_spearman(a, a + rng.normal(size=100))
    assert found.low < found.score < found.high
    assert found.n == 100
    assert found.high - found.low < 0.4


def test_the_threshold_is_between_the_values_it_separates():
    values, labels = np.array([0.9, 0.2, 0.7, 0.1]), np.array([True, False, True, False])
    assert choose_threshold(values, labels) == pytest.approx((0.2 + 0.7) / 2)


@pytest.mark.parametrize(("labels", "expected"), [([True] * 3, -np.inf), ([False] * 3, np.inf)])
def test_a_threshold_for_one_label_is_infinite(labels, expected):
    assert choose_threshold(np.array([0.1, 0.2, 0.3]), np.array(labels)) == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=8))
def test_no_other_threshold_predicts_more_labels(pairs):
    values, labels = np.array([a for a, _ in pairs], float), np.array([b for _, b in pairs])

    def correct(threshold):
        return ((values >= threshold) == labels).sum()

    found = correct(choose_threshold(values, labels))
    assert found == max(correct(threshold) for threshold in (-1, 0.5, 1.5, 2.5, 3.5, 9))


def test_generalized_average_precision_by_hand():
    # The ranking has weights 0.5, 0, 1: (0.5 / 1 + 1.5 / 3); the best order 1, 0.5: (1 + 1.5 / 2).
    found = generalized_average_precision(np.array([0.5, 0.0, 1.0]))
    assert found == pytest.approx((0.5 + 0.5) / (1 + 0.75))


def test_generalized_average_precision_of_equal_weights_is_average_precision():
    found = generalized_average_precision(np.array([0.0, 1, 0, 1, 0]))
    assert found == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_the_best_ranking_has_precision_one():
    assert generalized_average_precision(np.array([0.9, 0.9, 0.4, 0.0])) == 1


def test_f_at_k_by_hand():
    # 3 relevant of 5, the first two are predicted and one of them is a hit: P = 1/2, R = 1/2
    counts = f_counts(np.array([True, False, True, False, True]), 2)
    precision, recall = 1 / 2, 1 / 2
    assert counts[0] / counts[1] == 2 * precision * recall / (precision + recall)
    # Of fewer candidates than k, all are predicted: P = 1/3, R = 1
    counts = f_counts(np.array([False, True, False]), 10)
    assert counts[0] / counts[1] == pytest.approx(2 * (1 / 3) / (1 / 3 + 1))
