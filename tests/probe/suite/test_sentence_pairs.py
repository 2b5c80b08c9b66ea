"""STS-B and SICK: their files, pooled vectors and correlations."""

from dataclasses import replace

import numpy as np
import pytest

from elmore.embed.embedder import Embedder
from elmore.errors import DataError
from elmore.probe import estimates
from elmore.probe.estimates import spearman
from elmore.probe.suite.sentence_pairs import (
    PairSplits,
    SentencePair,
    read_sick,
    read_sts,
    score_pairs,
)
from tests.support import toy_suite
from tests.support.toy_pooling import make_pooling

WRITERS = {
    "sts": (toy_suite.write_sts, read_sts, "sts-test.csv"),
    "sick": (toy_suite.write_sick, read_sick, "SICK_test_annotated.txt"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_pairs_are_read_as_they_are_published(tmp_path, name):
    write, read, _ = WRITERS[name]
    write(tmp_path / name)
    data = read(tmp_path / name)
    first, second = (tuple(text.split()) for text in toy_suite.SENTENCES[:2])
    assert data.test[:2] == [SentencePair(first, first, 5.0), SentencePair(first, second, 4.5)]
    assert data.train == data.dev == data.test


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("5.0", "5.1", "expected a similarity from 0 to 5, found '5.1'"),
        ("5.0", "nan", "expected a similarity from 0 to 5, found 'nan'"),
        ("5.0", "much", "expected a similarity from 0 to 5, found 'much'"),
        ("\t5.0\t", "\n", "columns or more, separated by tabs, found"),
        (toy_suite.SENTENCES[0], " ", "a sentence has no words"),
    ],
)
def test_a_damaged_line_is_refused(tmp_path, name, old, new, why):
    write, read, file = WRITERS[name]
    write(tmp_path / name)
    path = tmp_path / name / file
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=rf"{file}:\d: .*{why}"):
        read(tmp_path / name)


def test_a_file_of_sick_needs_its_header(tmp_path):
    toy_suite.write_sick(tmp_path / "sick")
    path = tmp_path / "sick" / "SICK_trial.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(DataError, match=r"SICK_trial\.txt:1: expected a header with the columns"):
        read_sick(tmp_path / "sick")
    path.write_text("")
    with pytest.raises(DataError, match="expected a header"):
        read_sick(tmp_path / "sick")


def test_one_pair_has_no_correlation(tmp_path):
    toy_suite.write_sts(tmp_path / "sts")
    path = tmp_path / "sts" / "sts-dev.csv"
    path.write_text(path.read_text().splitlines()[0])
    with pytest.raises(DataError, match=r"sts-dev\.csv: expected two pairs of sentences or more"):
        read_sts(tmp_path / "sts")


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(estimates, "_RANK_RESAMPLES", 5)


def test_scores_are_correlations_of_the_cosines_of_pooled_vectors(elmo, no_progress, tmp_path):
    toy_suite.write_sts(tmp_path / "sts")
    data = read_sts(tmp_path / "sts")
    elmo = Embedder(replace(elmo.bundle, poolings={"toy": make_pooling(elmo)}))
    found = score_pairs(elmo, data, 0, no_progress)
    layers = ["0", "1", "2", "average"]
    assert [score.method for score in found] == [*layers, "learned pooling", "pooling toy"]
    assert {score.n for score in found} == {4}
    texts = [text.split() for text in toy_suite.SENTENCES]
    pooling = elmo.learn_pooling(texts)
    options = [{"layers": 0}, {"layers": 1}, {"layers": 2}, {"pool": "mean"}]
    options += [{"pool": pooling}, {"pool": "toy"}]
    gold = np.array([pair.similarity for pair in data.test])
    for score, option in zip(found, options, strict=True):
        cosines = elmo.similarity(texts[:1], texts, **option)[0]
        assert score.score == pytest.approx(spearman(cosines, gold))


def test_the_method_is_chosen_on_dev(elmo, no_progress):
    words = [tuple(text.split()) for text in toy_suite.SENTENCES]
    (cosines,) = elmo.similarity([list(words[0])], [list(other) for other in words], layers=2)
    ranks = np.argsort(np.argsort(cosines)).tolist()
    pairs = [
        SentencePair(words[0], other, float(rank)) for other, rank in zip(words, ranks, strict=True)
    ]
    reversed_pairs = [pair._replace(similarity=3 - pair.similarity) for pair in pairs]
    found = score_pairs(elmo, PairSplits(pairs, pairs, reversed_pairs), 0, no_progress)
    (chosen,) = [score for score in found if score.chosen]
    assert chosen.score == pytest.approx(-1)  # layer 2, or another that ranks dev as well
