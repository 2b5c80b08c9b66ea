"""Comparing two small texts."""

import errno
import os

import numpy as np
import pytest

from elmore import atomic
from elmore.embed.loading import load
from elmore.errors import ConfigError, DataError
from elmore.probe.change import journal, study
from elmore.probe.change.study import compare_corpora, read_words
from elmore.probe.neighbors.index import OccurrenceIndex
from elmore.probe.neighbors.source_text import TextOptions
from tests.support import toy_tasks

OLD = [
    "They sat on the bank of the river .",
    "The Bank lent them money .",
    "one bank , two banks .",
]
NEW = ["Her bank closed the account .", "The banks of the canal were steep .", "a bank is a bank ."]
WORDS = {"bank": ["bank", "banks"], "the": ["the"]}


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    return load(toy_tasks.bilm(tmp_path_factory.mktemp("model") / "bilm"), device="cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def texts(tmp_path):
    paths = tmp_path / "old.txt", tmp_path / "new.txt"
    for path, lines in zip(paths, (OLD, NEW), strict=True):
        path.write_text("\n".join(lines * 4) + "\n")
    return paths


def compare(elmo, texts, **choices):
    return compare_corpora(elmo, *texts, options=TextOptions(tokenized=True), **choices)


def test_the_uses_of_all_forms_are_measured_in_both_corpora(elmo, texts):
    found = compare(elmo, texts, words=WORDS)
    change = found["bank"]
    assert (change.old, change.new) == (16, 16)
    assert sum(sense.old for sense in change.senses) == change.old_sample == 16
    assert {use.tokens[use.position] for use in change.uses} == {"bank", "Bank", "banks"}
    first = change.uses[0]
    assert (first.period, first.line, first.tokens) == ("old", 0, tuple(OLD[0].split()))
    values = [found[word].scores.apd.value for word in found.ranking]
    assert values == sorted(values, reverse=True)
    assert [one.word for one in found] == list(found.ranking)


def test_samples_are_bounded_and_depend_on_the_seed_alone(elmo, texts):
    found = compare(elmo, texts, words=WORDS, max_uses=10)["bank"]
    alone = compare(elmo, texts, words={"bank": ["bank", "banks"]}, max_uses=10)["bank"]
    other = compare(elmo, texts, words=WORDS, max_uses=10, seed=1)["bank"]
    assert (found.old, found.old_sample, found.new_sample) == (16, 10, 10)
    assert found == alone
    listed = compare(elmo, texts, words=["the"], max_uses=10)["the"]
    assert listed == compare(elmo, texts, words=WORDS, max_uses=10)["the"]
    assert [use.line for use in found.uses] != [use.line for use in other.uses]


def test_an_index_gives_what_its_text_gives(elmo, texts, tmp_path):
    folders = [
        OccurrenceIndex.build(tmp_path / f"{path.stem}-index", elmo, [path], tokenized=True).folder
        for path in texts
    ]
    from_texts, from_indexes = (
        compare(elmo, corpora, max_uses=12, words=WORDS)["bank"] for corpora in (texts, folders)
    )
    assert [(use.line, use.position) for use in from_texts.uses] == [
        (use.line, use.position) for use in from_indexes.uses
    ]
    assert from_indexes.scores.apd.value == pytest.approx(from_texts.scores.apd.value, abs=1e-3)
    assert from_indexes != from_texts  # measured, not read from the journal: float16 rounds


def test_without_words_the_frequent_ones_of_both_corpora_are_compared(elmo, texts, tmp_path):
    found = compare(elmo, texts)
    assert set(found.ranking) == {"bank", "the"}  # others are in one corpus, too rare, or signs
    assert not found.left_out
    index = OccurrenceIndex.build(tmp_path / "index", elmo, [texts[0]], tokenized=True)
    assert set(compare(elmo, (index.folder, texts[1])).ranking) == {"bank", "the"}
    assert compare(elmo, texts, max_words=1).ranking == ("bank",)


def test_words_that_are_too_rare_are_left_out_with_their_counts(elmo, texts):
    found = compare(elmo, texts, words={**WORDS, "river": ["river"], "moon": ["moon"]})
    assert [(one.word, one.old, one.new) for one in found.left_out] == [
        ("river", 4, 0),
        ("moon", 0, 0),
    ]
    assert set(found.ranking) == {"bank", "the"}


def test_a_finished_comparison_is_read_and_a_damaged_word_measured_again(elmo, texts, monkeypatch):
    first = compare(elmo, texts, words=WORDS)
    before = list(first)
    measured = []
    inner = study.measure_word

    def counted(count, *rest, **more):
        measured.append(count.word)
        return inner(count, *rest, **more)

    monkeypatch.setattr(study, "measure_word", counted)
    assert list(compare(elmo, texts, words=WORDS)) == before
    assert measured == []
    (folder,) = {path.parent for path in first._journal.folder.glob("word-*.json")}
    (folder / "word-00001.json").write_text('{"format": 1, "word": "the"')
    again = compare(elmo, texts, words=WORDS)
    assert measured == ["the"]
    assert list(again) == before
    compare(elmo, texts)  # without a list it is another comparison
    assert measured[1:] == ["bank", "the"]


def test_a_full_disk_is_named_and_the_comparison_resumes(elmo, texts, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(journal.atomic, "write", _fail_at_words)
        with pytest.raises(
            DataError, match=r"word-00000\.json: cannot be written \(No space left on"
        ):
            compare(elmo, texts)
    assert len(compare(elmo, texts)) > 0


def _fail_at_words(path, data, write=atomic.write):
    if path.name.startswith("word-"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write(path, data)


def test_a_missing_word_of_all_words_is_measured_again(elmo, texts):
    first = compare(elmo, texts)
    before = list(first)
    (first._journal.folder / "word-00000.json").unlink()
    with pytest.raises(DataError, match="deleted or damaged; compare again"):
        list(first)
    assert list(compare(elmo, texts)) == before


def test_ranking_by_another_measure_measures_nothing_again(elmo, texts, monkeypatch):
    by_apd = compare(elmo, texts, words=WORDS)
    monkeypatch.setattr(study, "measure_word", None)
    by_prt = compare(elmo, texts, words=WORDS, rank_by="prt")
    values = [by_prt[word].scores.prt.value for word in by_prt.ranking]
    assert values == sorted(values, reverse=True)
    assert set(by_prt.ranking) == set(by_apd.ranking)


def test_layers_differ_and_the_top_one_is_the_default(elmo, texts):
    top, second, first = (
        compare(elmo, texts, words=WORDS, layer=layer)["bank"].scores for layer in ("top", "2", "1")
    )
    assert top == second
    assert not np.isclose(top.apd.value, first.apd.value)


def test_an_index_is_compared_by_a_layer_that_it_has_stored(elmo, texts, tmp_path):
    first, second = (
        OccurrenceIndex.build(
            tmp_path / f"{path.stem}-index", elmo, [path], tokenized=True, layers=layers
        ).folder
        for path, layers in zip(texts, (["1", "cloze"], ["0", "cloze"]), strict=True)
    )
    for corpora, expected in [
        ((first, second), "cloze"),
        ((first, texts[1]), "1"),
        ((texts[0], second), "0"),
        (texts, "2"),
    ]:
        assert compare(elmo, corpora, words=WORDS).layer == expected
    other = OccurrenceIndex.build(
        tmp_path / "other", elmo, [texts[1]], tokenized=True, layers=["0"]
    )
    with pytest.raises(ConfigError, match=r"different layers: .*\(1, cloze\) and .*\(0\); build"):
        compare(elmo, (first, other.folder), words=WORDS)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"min_uses": 1}, "min_uses of 2 or more"),
        ({"max_uses": 5}, "max_uses of at least that, found 10 and 5"),
        ({"layer": "all"}, "a use has one vector"),
        ({"layer": "9"}, "layers 0 to 2"),
        ({"words": "bank"}, "expected a list of words"),
        ({"words": []}, "the list is empty"),
        ({"words": {"bank": []}}, "'bank' has no forms"),
        ({"words": {"a": ["x"], "b": ["X"]}}, "'X' is a form of both 'a' and 'b'"),
    ],
)
def test_impossible_choices_are_refused(elmo, texts, choices, message):
    with pytest.raises(ConfigError, match=message):
        compare(elmo, texts, **choices)


def test_corpora_with_a_text_in_common_are_refused(elmo, texts, tmp_path):
    copy = tmp_path / "copy.txt"
    copy.write_bytes(texts[0].read_bytes())
    for other in (texts[0], copy, tmp_path / "*.txt"):
        with pytest.raises(DataError, match="in common; pass two corpora that differ"):
            compare(elmo, (texts[0], other))


def test_corpora_that_cannot_be_compared_are_named(elmo, texts, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    with pytest.raises(DataError, match=r"empty.txt: holds no words"):
        compare(elmo, (texts[0], empty))
    with pytest.raises(DataError, match="cannot be read"):
        compare(elmo, (texts[0], tmp_path / "gone.txt"))
    with pytest.raises(DataError, match="cannot be standard input"):
        compare(elmo, (texts[0], "-"))
    with pytest.raises(DataError, match="found a folder"):
        compare(elmo, (texts[0], tmp_path))
    with pytest.raises(DataError, match=r"none of the 1 words .* 'moon' with 0 old and 0 new"):
        compare(elmo, texts, words={"moon": ["moon"]})
    with pytest.raises(DataError, match="no word of letters occurs 100 times"):
        compare(elmo, texts, min_uses=100)


def test_a_list_of_words_has_forms_after_commas(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("mouse, mice\n\n  Plane\n")
    assert read_words(path) == {"mouse": ["mouse", "mice"], "Plane": ["Plane"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "holds no words; expected one in each line"),
        ("ice cream\n", "words.txt:1: 'ice cream' is more than one token"),
        ("mouse\nrat, Mouse\n", "words.txt:2: 'Mouse' is listed already at .*words.txt:1"),
    ],
)
def test_a_bad_list_of_words_is_refused_by_its_line(tmp_path, text, message):
    path = tmp_path / "words.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_words(path)
