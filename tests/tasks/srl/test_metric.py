import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.srl.data import Frame
from elmore.tasks.srl.metric import extract_arguments, score

TAGS = ["O", "B-V", "B-A0", "I-A0", "B-C-A0", "B-R-A0", "B-AM-TMP", "I-AM-TMP", "B-C-V"]


def frame(tags: str, predicate: int = 0) -> Frame:
    return Frame(predicate, "go.01", tags.split())


def guess(tags: str, predicate: int = 0, *, given: bool = True, found: bool = True) -> dict:
    return {"predicate": predicate, "given": given, "found": found, "tags": tags.split()}


def test_a_continuation_is_part_of_the_last_argument_it_continues():
    tags = "B-A1 I-A1 B-V B-C-A1 O B-A1 B-C-A1 B-C-V B-R-A1"
    assert extract_arguments(tags.split()) == {
        ("A1", ((0, 2), (3, 4))),
        ("A1", ((5, 6), (6, 7))),
        ("R-A1", ((8, 9),)),
    }


def test_a_continuation_of_nothing_is_an_argument():
    assert extract_arguments(["B-C-A1", "B-V", "B-C-A1"]) == {("A1", ((0, 1), (2, 3)))}


def test_a_label_is_right_with_its_bounds_alone():
    # true: A0 at 0-2, A1 at 3-4, AM-TMP at 4-5; guessed: A0 at 0-2, A1 at 3-5, AM-TMP at 5-6.
    # right 1 (A0) of 3 guessed and 3 true: 100/3; V is right, and not counted
    gold = [[frame("B-A0 I-A0 B-V B-A1 B-AM-TMP O", 2)]]
    result = [[guess("B-A0 I-A0 B-V B-A1 I-A1 B-AM-TMP", 2)]]
    assert score(gold, result) == pytest.approx(
        {
            "f1": 100 / 3,
            "precision": 100 / 3,
            "recall": 100 / 3,
            "f1_A0": 100.0,
            "f1_A1": 0.0,
            "f1_modifiers": 0.0,
            "predicate_f1": 100.0,
            "end_to_end_f1": 100 / 3,
        }
    )


def test_both_parts_of_an_argument_must_match():
    # true: A1 of two parts, R-A0. guessed: A1 of the first part alone, R-A0, A2.
    # right 1 (R-A0); precision 1/3, recall 1/2, f1 = 2 * 1 / (3 + 2) = 2/5
    gold = [[frame("B-A1 B-V B-C-A1 B-R-A0", 1)]]
    scores = score(gold, [[guess("B-A1 B-V B-A2 B-R-A0", 1)]])
    assert scores["precision"] == pytest.approx(100 / 3)
    assert scores["recall"] == pytest.approx(50)
    assert scores["f1"] == pytest.approx(40)
    assert scores["f1_references"] == 100
    # with the second part too, A1 is right: 2 of 2 guessed, 2 of 2 true
    assert score(gold, [[guess("B-A1 B-V B-C-A1 B-R-A0", 1)]])["f1"] == 100
    # called A1 instead of C-A1 it makes two arguments, both wrong: 2 * 1 / (3 + 2) again
    assert score(gold, [[guess("B-A1 B-V B-A1 B-R-A0", 1)]])["f1"] == pytest.approx(40)


def test_rare_numbered_labels_count_and_are_not_listed():
    scores = score([[frame("B-V B-ARG1-DSP")]], [[guess("B-V B-ARG1-DSP")]])
    assert scores["f1"] == 100
    assert [name for name in scores if name.startswith("f1_")] == []


def test_predicted_predicates_are_scored_separately():
    # given, both predicates have their two arguments right: f1 100.
    # found are 0 and, wrongly, 2: predicates 2 * 1 / (2 + 2) = 1/2; of their arguments 1 is right
    # of 2 guessed (A0 of 0, A0 of 2) and 2 true: 2 * 1 / (2 + 2) = 1/2
    gold = [[frame("B-V B-A0 O"), frame("O B-V B-A1", 1)]]
    result = [
        [
            guess("B-V B-A0 O"),
            guess("O B-V B-A1", 1, found=False),
            guess("B-A0 O B-V", 2, given=False),
        ]
    ]
    scores = score(gold, result)
    assert (scores["f1"], scores["predicate_f1"], scores["end_to_end_f1"]) == (100, 50, 50)


def test_the_same_argument_of_another_predicate_is_another():
    gold = [[frame("B-V O B-A0"), frame("O B-V O", 1)]]
    result = [[guess("B-V O O"), guess("O B-V B-A0", 1)]]
    scores = score(gold, result)
    assert (scores["f1"], scores["end_to_end_f1"]) == (0, 0)


def test_no_examples_score_zero():
    nothing = {"f1": 0, "precision": 0, "recall": 0, "predicate_f1": 0, "end_to_end_f1": 0}
    assert score([], []) == score([[]], [[]]) == nothing


@given(st.lists(st.lists(st.sampled_from(TAGS), min_size=1, max_size=7), min_size=1, max_size=4))
def test_gold_predictions_score_100_wherever_there_are_arguments(sentences):
    gold = [[Frame(0, "go.01", tags)] for tags in sentences]
    scores = score(gold, [[guess(" ".join(tags))] for tags in sentences])
    expected = 100 if any(map(extract_arguments, sentences)) else 0
    assert scores["f1"] == scores["precision"] == scores["recall"] == expected
    assert scores["predicate_f1"] == 100
