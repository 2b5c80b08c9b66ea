import pytest

from elmore.tasks.pos.metric import score


def test_accuracy_is_over_words_not_sentences():
    gold, predicted = [["A", "B", "C"], ["A"], []], [["A", "B", "B"], ["B"], []]
    assert score(gold, predicted) == {"accuracy": 50.0}


def test_no_words_score_zero():
    assert score([], []) == {"accuracy": 0.0}


def test_a_sentence_of_another_length_is_named():
    with pytest.raises(ValueError, match="sentence 0 has 1 tags and 2 predicted"):
        score([["A"]], [["A", "A"]])


def test_a_sentence_too_few_is_refused():
    with pytest.raises(ValueError, match="zip"):
        score([["A"], ["A"]], [["A"]])
