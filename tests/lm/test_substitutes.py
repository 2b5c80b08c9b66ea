"""Words in the place of others, by models whose opinions are known."""

import json
from dataclasses import replace

import numpy as np
import pytest

from elmore.errors import ConfigError, DataError
from elmore.lm import substitution_vectors
from elmore.lm.scoring import score
from elmore.lm.substitutes import Place, predict_at_places, predict_substitutes
from elmore.lm.substitution_vectors import (
    Replacement,
    embed_replacements,
    substitution_cosines,
)
from elmore.lm.surprisal import measure_surprisal
from elmore.text.tokenizers import whitespace
from elmore.text.written_words import split_text
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
    first, second, *rest = [word for word, _ in result.both]
    assert (first, second) == ("storm", "river")
    assert len(rest) == 3
    assert [word for word, _ in result.forward[:2]] == ["storm", "river"]
    assert result.forward[0][1] - result.forward[1][1] == pytest.approx(20)
    # <UNK> takes its share of a direction's probability though it is no substitute
    assert result.forward[0][1] == pytest.approx(-10, abs=1e-3)


def test_both_is_the_both_of_surprisal(bundle, corpus):
    sentence = ["two", "ships", "come"]
    (result,) = predict_substitutes(bundle, sentence, [1], count=10**6)
    both = dict(result.both)
    assert set(both) == set(corpus.vocabulary.words) - MARKS
    for word in ("ships", "the", "storm"):
        text = split_text(f"two {word} come", tokenizer=whitespace)
        measured = measure_surprisal(bundle, text)[1].both
        assert both[word] / -np.log(2) == pytest.approx(measured, abs=1e-4)


def test_reranked_words_are_the_probable_ones_that_are_close_to_the_word(bundle):
    sentence = ["two", "ships", "come"]
    (result,) = predict_substitutes(bundle, sentence, [1], count=10**6, rerank=True)
    both, reranked = dict(result.both), dict(result.reranked)
    assert set(reranked) == set(both) - {"ships"}
    assert sum(map(np.exp, reranked.values())) == pytest.approx(1)
    assert list(reranked.values()) == sorted(reranked.values(), reverse=True)
    words = ["storm", "the", "river"]
    cosines = substitution_cosines(bundle, sentence, 1, [[word] for word in words])[1]
    expected = [both[word] + 40 * cosine for word, cosine in zip(words, cosines, strict=True)]
    found = [reranked[word] for word in words]
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-4)


def test_without_rerank_there_is_no_such_list(bundle):
    (result,) = predict_substitutes(bundle, ["two", "ships"], [1])
    assert result.reranked is None
    (few,) = predict_substitutes(bundle, ["two", "ships"], [1], count=2, rerank=True)
    assert len(few.reranked) == 2


@pytest.mark.parametrize("position", [0, 2, 4])
def test_a_substitute_has_the_vector_that_the_whole_sentence_gives_it(bundle, position):
    sentence = ["two", "old", "ships", "come", "."]
    candidates = [["river"], ["a", "very", "quiet", "storm"], ["bank"]]
    others = Replacement(["a", "storm"], 1, [["ships"], ["two", "ships"]])
    own = Replacement(sentence, position, candidates)
    _, found, _ = embed_replacements(bundle, [others, own, others])
    for words, vectors in zip(candidates, found, strict=True):
        whole = [*sentence[:position], *words, *sentence[position + 1 :]]
        stack, _ = bundle.run([whole])
        inside = stack.states[:, 0, position + 1 : position + 1 + len(words)]  # <S> is first
        np.testing.assert_allclose(vectors, inside.mean(dim=1).detach(), atol=1e-5)


def test_candidates_that_do_not_run_together_have_the_same_vectors(bundle, monkeypatch):
    candidates = [["river"], ["a", "storm"], ["bank"], ["ships"], ["two", "ships"]]
    replacements = [Replacement(["two", "old", "ships"], at, candidates) for at in range(3)]
    together = embed_replacements(bundle, replacements)
    monkeypatch.setattr(substitution_vectors, "_MAX_CANDIDATES", 2)
    monkeypatch.setattr(substitution_vectors, "_GROUP", 1)
    apart = embed_replacements(bundle, replacements)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert embed_replacements(bundle, []) == []


def test_places_of_several_sentences_have_the_substitutes_of_each_alone(bundle):
    sentences = [["two", "ships", "come", "."], ["the", "old", "bridge"], ["storm"]]
    places = [Place(words, at) for words in sentences for at in range(len(words))]
    together = list(predict_at_places(bundle, places, count=3, rerank=True))
    alone = [
        found
        for words in sentences
        for found in predict_substitutes(bundle, words, count=3, rerank=True)
    ]
    assert [found.position for found in together] == [place.position for place in places]
    for one, other in zip(together, alone, strict=True):
        for mine, theirs in zip(one[1:], other[1:], strict=True):
            assert [word for word, _ in mine] == [word for word, _ in theirs]
            np.testing.assert_allclose(*([v for _, v in each] for each in (mine, theirs)), 1e-4)
    assert list(predict_at_places(bundle, [], count=3, rerank=True)) == []


def test_positions_may_be_an_array(bundle):
    found = predict_substitutes(bundle, ["two", "ships", "come"], np.array([2, -3]), count=1)
    assert [each.position for each in found] == [2, 0]


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


def test_the_command_prints_one_line_for_a_token_with_a_line_break(model, tmp_path):
    (tmp_path / "text.jsonl").write_text(json.dumps({"text": ["two", "a\nb\tc"]}) + "\n")
    lines = run_elmore("score", model, str(tmp_path / "text.jsonl")).out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["two", "a\\nb\\tc", ""]


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


def test_the_command_ranks_again_on_request(model, text):
    command = ("score", model, text, "--substitutes", "2", "--rerank")
    lines = run_elmore(*command).out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("ships\t"))
    assert lines[at + 4].split("\t")[1] == "reranked"
    marked = json.loads(run_elmore(*command, "--json").out.splitlines()[0])
    assert "ships" not in dict(marked["substitutes"][0]["reranked"])
    done = run_elmore("score", model, text, "--rerank")
    assert (done.code, done.out) == (1, "")
    assert "pass --substitutes N too" in done.err


@pytest.mark.parametrize(
    ("position", "candidates", "message"),
    [
        (-1, [["a"]], "position -1 is outside a sentence of 3 tokens"),
        (3, [["a"]], "position 3 is outside"),
        (1, [["a"], []], "candidate 1 has no tokens"),
        (1, ["a"], "expected a list of tokens, found 'a'"),
    ],
)
def test_no_vector_is_made_up_for_a_place_or_a_candidate_that_is_none(
    bundle, position, candidates, message
):
    with pytest.raises(DataError, match=message):
        embed_replacements(bundle, [Replacement(["the", "old", "bridge"], position, candidates)])
