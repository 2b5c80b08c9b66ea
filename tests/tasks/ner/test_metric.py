import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.ner.metric import score

TAGS = ["O", "O", "B-x", "I-x", "B-y-z", "I-y-z", "E-x", "S-x"]


def test_a_name_counts_when_its_bounds_and_type_are_right():
    gold = [["B-a", "I-a", "O", "B-b"], ["B-b", "O"]]
    predicted = [["B-a", "O", "O", "B-b"], ["B-a", "O"]]
    assert score(gold, predicted) == pytest.approx(
        {
            "f1": 100 / 3,
            "precision": 100 / 3,
            "recall": 100 / 3,
            "f1_a": 0.0,
            "f1_b": 100 * 2 / 3,
        }
    )


def test_gold_predictions_score_100():
    gold = [["B-a", "I-a", "O"], []]
    assert score(gold, gold) == {"f1": 100, "precision": 100, "recall": 100, "f1_a": 100}


def test_no_names_score_zero():
    assert score([["O"]], [["O"]]) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}
    assert score([], []) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


def test_a_sentence_of_another_length_is_named():
    with pytest.raises(ValueError, match="sentence 1 has 2 tags and 1 predicted"):
        score([["O"], ["O", "O"]], [["O"], ["O"]])


pairs = st.integers(0, 7).flatmap(
    lambda n: st.tuples(*[st.lists(st.sampled_from(TAGS), min_size=n, max_size=n)] * 2)
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # theirs, where there are no names
@given(st.lists(pairs, min_size=1, max_size=4))
def test_scores_are_those_of_seqeval_ill_formed_tags_too(sentences):
    metrics = pytest.importorskip("seqeval.metrics")
    gold, predicted = map(list, zip(*sentences, strict=True))
    ours = score(gold, predicted)
    for name in ("precision", "recall", "f1"):
        theirs = getattr(metrics, f"{name}_score")(gold, predicted, zero_division=0)
        assert ours[name] == pytest.approx(100 * theirs)
    report = metrics.classification_report(gold, predicted, output_dict=True, zero_division=0)
    theirs = {
        f"f1_{kind}": 100 * row["f1-score"] for kind, row in report.items() if "avg" not in kind
    }
    assert {key: value for key, value in ours.items() if key.startswith("f1_")} == pytest.approx(
        theirs
    )
