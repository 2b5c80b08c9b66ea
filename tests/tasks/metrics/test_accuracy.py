import pytest

from elmore.tasks.metrics.accuracy import score


def test_accuracy_is_the_fraction_of_correct_labels():
    assert score(["a", "b", "a", "c"], ["a", "a", "a", "c"]) == {"accuracy": 75.0}
    assert score(["a"], ["b"]) == {"accuracy": 0.0}


def test_accuracy_over_nothing_is_zero():
    assert score([], []) == {"accuracy": 0.0}


def test_a_missing_prediction_is_refused():
    with pytest.raises(ValueError, match="shorter"):
        score(["a", "b"], ["a"])
