import pytest

from elmore.tasks.metrics.accuracy import score


def test_accuracy_is_the_share_of_labels_that_are_right():
    assert score(["a", "b", "a", "c"], ["a", "a", "a", "c"]) == {"accuracy": 75.0}
    assert score(["a"], ["b"]) == {"accuracy": 0.0}


def test_of_nothing_nothing_is_right():
    assert score([], []) == {"accuracy": 0.0}


def test_a_prediction_too_few_is_no_score():
    with pytest.raises(ValueError, match="shorter"):
        score(["a", "b"], ["a"])
