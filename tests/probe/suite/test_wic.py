"""WiC's pairs, their thresholds, and which split is scored."""

import numpy as np
import pytest

from elmore.errors import DataError
from elmore.probe.suite.wic import ContextPair, WiC, WordInContext, read_wic, score_wic
from tests.support import toy_suite


def test_pairs_are_read_as_they_are_published(tmp_path):
    toy_suite.write_wic(tmp_path, ("train", "dev", "test"))
    data = read_wic(tmp_path)
    assert data.split == "test"
    assert data.train[0] == ContextPair(
        WordInContext(("The", "bank", "lies", "near", "the", "lake", "."), 1),
        WordInContext(("the", "bank", "opens"), 1),
        False,
    )
    assert [pair.same for pair in data.test] == [False, True, True]


def test_without_labels_of_the_test_pairs_dev_is_scored_and_train_chooses(tmp_path):
    toy_suite.write_wic(tmp_path)
    data = read_wic(tmp_path)
    assert (data.split, data.dev) == ("dev", data.train)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "bank\tN\t1-1\tThe bank",
        "bank\tN\t1\tThe bank\tthe bank",
        "bank\tN\t1-x\tThe bank\tthe bank",
        "bank\tN\t1-2\tThe bank\tthe bank",
        "bank\tN\t0-0\tThe bank\t",
        "bank\tN\t1--1\tThe bank\tthe bank",
    ],
)
def test_a_line_that_is_no_pair_is_refused_with_its_place(tmp_path, line):
    toy_suite.write_wic(tmp_path)
    (tmp_path / "dev" / "dev.data.txt").write_text(f"{line}\n" * 3)
    with pytest.raises(DataError, match=r"dev\.data\.txt:1: "):
        read_wic(tmp_path)


def test_labels_must_be_as_many_as_pairs_and_known(tmp_path):
    toy_suite.write_wic(tmp_path)
    gold = tmp_path / "dev" / "dev.gold.txt"
    gold.write_text("T\nF\n")
    with pytest.raises(DataError, match=r"has 3 lines and dev\.gold\.txt 2"):
        read_wic(tmp_path)
    gold.write_text("T\nF\nyes\n")
    with pytest.raises(DataError, match=r"dev\.gold\.txt:3: expected the label T or F"):
        read_wic(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    toy_suite.write_wic(tmp_path, ("train",))
    with pytest.raises(DataError, match=r"dev: expected one file dev\.data\.txt in it, found 0"):
        read_wic(tmp_path)


def test_each_layer_has_the_accuracy_of_its_training_threshold(elmo, no_progress):
    same = ContextPair(WordInContext(("two", "ships"), 1), WordInContext(("two", "ships"), 1), True)
    other = ContextPair(WordInContext(("two", "ships"), 1), WordInContext(("a", "lake"), 0), False)
    train = [same, other]
    found = score_wic(elmo, WiC(train, train, [same, same, other], "dev"), 0, no_progress)
    assert [score.method for score in found] == ["0", "1", "2", "average"]
    assert {(score.score, score.n, score.split) for score in found} == {(1.0, 3, "dev")}
    assert [score.chosen for score in found] == [True, False, False, False]  # the first of the best


def test_a_threshold_that_train_sets_is_not_changed_by_the_scored_pairs(elmo, no_progress):
    same = ContextPair(WordInContext(("two", "ships"), 1), WordInContext(("two", "ships"), 1), True)
    other = ContextPair(WordInContext(("two", "ships"), 1), WordInContext(("a", "lake"), 0), False)
    wrong = [same._replace(same=False), other._replace(same=True)]
    found = score_wic(elmo, WiC([same, other], [same, other], wrong, "test"), 0, no_progress)
    np.testing.assert_array_equal([score.score for score in found], 0)
