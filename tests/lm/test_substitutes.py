"""Words in the place of others, by models whose opinions are known."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from elmore.errors import ConfigError, DataError
from elmore.lm.scoring import score
from elmore.lm.substitutes import predict_substitutes
from elmore.weights import folder
from elmore.weights.bundle import Bundle
from tests.lm.test_scoring import prefer
from tests.support import toy_corpus
from tests.support.cli_runner import run_elmore

MARKS = {"<S>", "</S>", "<UNK>"}


@pytest.fixture
def bundle(corpus) -> Bundle:
    return toy_corpus.training(corpus).bundle({})


def test_the_word_that_is_preferred_comes_first_and_marks_never(bundle):
    prefer(bundle, "<UNK>", "storm", "</S>", "river")
    (result,) = predict_substitutes(bundle, ["a", "grey", "cat"], [1], count=5)
    (first, best), (second, other), *rest = result.both
    assert (first, second) == ("storm", "river")
    assert len(rest) == 3
    assert best == pytest.approx(0, abs=1e-4)
    assert best - other == pytest.approx(2 * 20)  # both directions say so
    assert [word for word, _ in result.forward[:2]] == ["storm", "river"]
    assert result.forward[0][1] - result.forward[1][1] == pytest.approx(20)
    # <UNK> takes its share of a direction's probability though it is no substitute
    assert result.forward[0][1] == pytest.approx(-10, abs=1e-3)


def test_both_is_the_product_of_the_directions_over_all_words(bundle, corpus):
    sentence = ["two", "ships", "come"]
    (result,) = predict_substitutes(bundle, sentence, [1], count=10**6)
    both = dict(result.both)
    assert set(both) == set(corpus.vocabulary.words) - MARKS
    assert sum(map(np.exp, both.values())) == pytest.approx(1, rel=1e-5)
    forward, backward = dict(result.forward), dict(result.backward)
    sums = [(both[word], forward[word] + backward[word]) for word in both]
    for (a, b), (c, d) in pairwise(sums):
        assert a - c == pytest.approx(b - d, abs=1e-4)


def test_each_direction_gives_a_word_what_the_scores_give_it(bundle):
    sentence = ["two", "ships", "come"]
    (result,) = predict_substitutes(bundle, sentence, [1], count=10**6)
    for word in ("ships", "the", "storm"):
        (scored,) = score(bundle, [[sentence[0], word, sentence[2]]])
        assert dict(result.forward)[word] == pytest.approx(scored.forward[1], abs=1e-4)
        assert dict(result.backward)[word] == pytest.approx(scored.backward[1], abs=1e-4)


def test_every_place_of_a_long_sentence_has_its_substitutes(bundle):
    sentence = ["two", "ships", "come", "."] * 20
    every = list(predict_substitutes(bundle, sentence, count=2))
    assert [result.position for result in every] == list(range(80))
    (alone,) = predict_substitutes(bundle, sentence, [70], count=2)
    assert [word for word, _ in alone.both] == [word for word, _ in every[70].both]
    assert list(predict_substitutes(bundle, sentence, [-10], count=2)) == [alone]
    assert list(predict_substitutes(bundle, [])) == []


@pytest.mark.parametrize("index", [3, -4])
def test_a_position_outside_the_sentence_is_refused(bundle, index):
    with pytest.raises(DataError, match=f"position {index} is outside a sentence of 3 tokens"):
        list(predict_substitutes(bundle, ["two", "ships", "come"], [index]))


def test_no_substitutes_cannot_be_asked_for(bundle):
    with pytest.raises(ConfigError, match="must be at least 1, found 0"):
        list(predict_substitutes(bundle, ["a"], count=0))


def test_a_model_without_a_softmax_says_where_to_get_one(bundle):
    with pytest.raises(DataError, match=r"has no softmax.*train it with 'elmore finetune'"):
        list(predict_substitutes(replace(bundle, softmax=None), ["a"]))


@pytest.fixture
def model(bundle, tmp_path) -> str:
    folder.save(bundle, tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def text(tmp_path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("two [ships] come.\na storm\n")
    return str(path)


def test_the_command_gives_those_of_the_marked_word_or_of_every_word(model, text, bundle):
    done = run_elmore("score", model, text, "--substitutes", "3", "--json")
    assert done.code == 0, done.err
    marked, plain = map(json.loads, done.out.splitlines())
    assert marked["tokens"] == ["two", "ships", "come", "."]
    assert [result["position"] for result in marked["substitutes"]] == [1]
    assert [result["position"] for result in plain["substitutes"]] == [0, 1]
    (expected,) = predict_substitutes(bundle, marked["tokens"], [1], count=3)
    for way in ("forward", "backward", "both"):
        words = [word for word, _ in marked["substitutes"][0][way]]
        assert words == [word for word, _ in getattr(expected, way)]


def test_the_command_prints_a_line_of_substitutes_for_each_direction(model, text):
    plain = run_elmore("score", model, text).out.splitlines()
    assert plain[1].split("\t")[0] == "["  # without the option a bracket is a word like others
    lines = run_elmore("score", model, text, "--substitutes", "2").out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("ships\t"))
    assert [line.split("\t")[1] for line in lines[at + 1 : at + 4]] == [
        "forward",
        "backward",
        "both",
    ]
    assert len(lines[at + 3].split("\t")[2].split("  ")) == 2
    assert not lines[at + 4].startswith("\t")


def test_the_command_refuses_a_model_without_a_softmax(bundle, tmp_path, text):
    folder.save(replace(bundle, softmax=None), tmp_path / "mute")
    done = run_elmore("score", str(tmp_path / "mute"), text, "--substitutes", "3")
    assert (done.code, done.out) == (1, "")
    assert "has no softmax" in done.err
    assert done.err.count("\n") == 1
