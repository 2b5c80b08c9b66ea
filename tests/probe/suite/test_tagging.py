"""Tags of the suite: which files are read, and how predictions are counted."""

import re

import pytest

from elmore.errors import DataError
from elmore.probe import linear_probe
from elmore.probe.suite import tagging
from elmore.probe.suite.tagging import read_pos, read_spans, score_tags
from tests.support import toy_suite


def test_a_treebank_gives_both_kinds_of_tags(tmp_path):
    toy_suite.write_taggings(tmp_path)
    own, universal = read_pos(tmp_path / "pos")
    assert (own.part, universal.part) == ("xpos", "upos")
    assert own.splits.test[0].tags == ["DT", "NN", "VBZ"]
    assert universal.splits.test[0].tags == ["DET", "NOUN", "VERB"]
    assert {own.metric, universal.metric} == {"accuracy"}


def test_a_treebank_without_tags_of_its_own_gives_the_universal_ones(tmp_path):
    toy_suite.write_taggings(tmp_path)
    for path in (tmp_path / "pos").iterdir():
        path.write_text("# a comment\n" + re.sub("\t(DT|NN|VBZ)\t", "\t_\t", toy_suite.CONLLU))
    assert [task.part for task in read_pos(tmp_path / "pos")] == ["upos"]


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_word_without_the_tag_that_others_have_is_named(tmp_path, split):
    toy_suite.write_taggings(tmp_path)
    path = tmp_path / "pos" / f"xx-ud-{split}.conllu"
    path.write_text(toy_suite.CONLLU.replace("\tVBZ\t", "\t_\t"))
    with pytest.raises(DataError, match=rf"{split}\.conllu:3: 'lies' has no xpos tag"):
        read_pos(tmp_path / "pos")


def test_without_a_dev_file_each_tenth_training_sentence_is_dev(tmp_path):
    toy_suite.write_taggings(tmp_path)
    (task,) = read_spans(tmp_path / "chunk")
    assert [len(split) for split in task.splits] == [10, 2, 12]
    assert task.splits.dev[0].tags == ["B-NP", "I-NP", "B-VP", "O"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("eng.train", ["train"]),
        ("eng.testa", ["dev"]),
        ("eng.testb", ["test"]),
        ("wnut17train.conll", ["train"]),
        ("emerging.dev.conll", ["dev"]),
        ("emerging.test.annotated", ["test"]),
        ("valid.txt", ["dev"]),
        ("en_ewt-ud-test.conllu.xz", ["test"]),
        ("readme.md", []),
    ],
)
def test_files_are_found_by_the_names_of_their_splits(name, split):
    assert list(tagging._splits_of(name)) == split


@pytest.mark.parametrize("name", ["train", "test"])
def test_a_missing_file_and_a_second_one_are_named(tmp_path, name):
    toy_suite.write_taggings(tmp_path)
    (tmp_path / "ner" / f"{name}.other").write_text("")
    with pytest.raises(DataError, match=f"one file with '{name}' in its name, found 2"):
        read_spans(tmp_path / "ner")
    (tmp_path / "ner" / f"{name}.other").unlink()
    (tmp_path / "ner" / f"{name}.conll").unlink()
    with pytest.raises(DataError, match=f"one file with '{name}' in its name, found 0"):
        read_spans(tmp_path / "ner")


def test_accuracy_is_over_tags_and_f1_over_spans():
    gold = ["B-PER", "I-PER", "O", "B-LOC"]
    assert tagging._count_tags(gold, ["B-PER", "O", "O", "B-LOC"]) == (3, 4)
    # predicted: PER of one token and LOC; gold: PER of two tokens and LOC; one is correct
    assert tagging._count_spans(gold, ["B-PER", "O", "O", "B-LOC"]) == (2, 4)
    assert tagging._count_spans(["O"], ["O"]) == (0, 0)


def test_sentences_are_scored_with_their_own_predictions(tmp_path):
    toy_suite.write_taggings(tmp_path)
    (task,) = read_spans(tmp_path / "ner")
    tags = task.splits.tags()[2]
    assert tagging._estimate(task, tags, 0) == (1.0, 1.0, 1.0, 4)
    half = [*tags[:6], *["O"] * 6]  # the names of the last two sentences are missed: 3 of 6
    assert tagging._estimate(task, half, 0).score == pytest.approx(2 * 3 / (6 + 3))


def test_each_layer_is_scored_and_the_best_on_dev_is_chosen(
    elmo, no_progress, tmp_path, monkeypatch
):
    monkeypatch.setattr(linear_probe, "_NUM_EPOCHS", 3)
    toy_suite.write_taggings(tmp_path)
    found = score_tags(elmo, read_pos(tmp_path / "pos"), 0, no_progress)
    assert [(score.part, score.method) for score in found] == [
        (part, layer) for part in ("xpos", "upos") for layer in ("0", "1", "2", "average")
    ]
    assert [score.chosen for score in found].count(True) == 2
    assert {score.score for score in found if score.chosen} == {1.0}
