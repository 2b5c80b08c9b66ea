"""Precision, recall and F1."""

import pytest

from elmore.tasks.metrics.prf import PrecisionRecallF1, percent


def test_scores_are_those_of_the_definition():
    counts = PrecisionRecallF1()
    counts.add([("person", 1), ("person", 2), ("place", 3)], [("person", 1), ("place", 4)])
    counts.add([("person", 1)], [("person", 1), ("person", 1)])  # the same thing twice is one
    precision, recall = 2 / 3, 2 / 4
    f1 = 2 * precision * recall / (precision + recall)
    expected = {"f1": 100 * f1, "precision": 100 * precision, "recall": 100 * recall}
    assert counts.scores() == pytest.approx(expected)
    assert counts.types == ["person", "place"]
    assert counts.f1("person".__eq__) == pytest.approx(100 * 2 * 2 / (2 + 3))
    assert counts.f1("place".__eq__) == 0


def test_a_percentage_of_nothing_is_zero():
    assert PrecisionRecallF1().scores() == {"f1": 0, "precision": 0, "recall": 0}
    assert percent(0, 0) == 0
