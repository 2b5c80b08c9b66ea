import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.squad.metric import normalize, overlap, score


def test_case_punctuation_articles_and_blanks_do_not_count():
    assert normalize("The  U.S. -- an Ally!") == "us ally"
    assert normalize("theatre a b") == "theatre b"
    assert normalize("«Ann»") == "«ann»"  # the script knows the marks of ASCII alone
    assert normalize("the") == ""


def test_the_overlap_counts_each_word_as_often_as_both_have_it():
    assert overlap("in New York", "New York City") == pytest.approx(2 / 3)
    assert overlap("no no no", "no") == pytest.approx(2 * 1 / 4)
    assert overlap("a b", "c") == 0  # "a" is an article
    assert overlap("the", "an") == 1  # nothing is left of either
    assert overlap("the", "Ann") == 0


def test_the_best_of_the_expected_answers_counts_each_time():
    result = score([["1999", "in 1999"], ["Ann", "Ann Lee"]], ["in 1999", "Lee"])
    assert result == pytest.approx({"f1": 100 * (1 + 2 / 3) / 2, "exact_match": 50})


def test_no_examples_score_zero():
    assert score([], []) == {"f1": 0, "exact_match": 0}


words = st.lists(st.sampled_from(["a", "The", "Rome", "rome!", "U.S.", "-", "x"])).map(" ".join)


@given(st.lists(words, min_size=1), words)
def test_another_gold_answer_never_lowers_the_score_and_gold_scores_100(answers, guess):
    fewer, more = score([answers], [guess]), score([[*answers, guess]], [guess])
    assert more == {"f1": 100, "exact_match": 100}
    assert 0 <= fewer["exact_match"] <= fewer["f1"] <= 100
