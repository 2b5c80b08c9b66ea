"""Scores of words, by models whose opinions are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from elmore.errors import DataError
from elmore.lm import scoring
from elmore.lm.scoring import score, score_batch
from elmore.lm.word_softmax import count_normalized
from elmore.model.config import SoftmaxConfig
from elmore.model.native_bilm import NativeBiLM
from elmore.model.softmax import build
from elmore.weights.bundle import Bundle
from tests.support import toy_corpus


@pytest.fixture
def bundle(corpus) -> Bundle:
    return toy_corpus.training(corpus).bundle({})


def prefer(bundle: Bundle, *words: str) -> None:
    """Make the softmax like these words whatever it read, the first the most."""
    softmax = bundle.softmax
    with torch.no_grad():
        softmax.weight.zero_()
        softmax.bias.zero_()
        for number, word in enumerate(reversed(words), start=1):
            softmax.bias[int(bundle.vocabulary.ids([word])[0])] = 10.0 * number


def test_a_model_of_zeros_gives_every_word_the_same_probability(bundle, corpus):
    prefer(bundle)
    (result,) = score(bundle, [["two", "ships", "xylophone", "."]])
    expected = np.full(4, -np.log(len(corpus.vocabulary)))
    np.testing.assert_allclose(result.forward, expected, rtol=1e-6)
    np.testing.assert_allclose(result.backward, expected, rtol=1e-6)
    assert result.tokens == ["two", "ships", "xylophone", "."]
    assert result.known == [True, True, False, True]


@pytest.mark.parametrize("kind", ["full", "adaptive"])
def test_a_model_in_half_precision_scores_about_alike(bundle, kind):
    config = SoftmaxConfig(kind=kind)
    softmax = build(config, len(bundle.vocabulary), bundle.config.lstm.output_dim)
    bundle = replace(bundle, softmax=softmax)
    (expected,) = score(bundle, [["two", "ships", "."]])
    bundle.model.half()
    softmax.half()
    (result,) = score(bundle, [["two", "ships", "."]])
    np.testing.assert_allclose(result.forward, expected.forward, rtol=0, atol=0.05)


def test_scores_are_the_full_softmax_of_what_stands_before_and_after(bundle):
    sentence = ["the", "river", "lies", "."]
    (result,) = score(bundle, [sentence])
    ids = bundle.vocabulary.ids(sentence)
    for position in range(4):
        with torch.no_grad():
            before, _ = bundle.run([sentence[:position]])
            after, _ = bundle.run([sentence[position + 1 :]])
            forward = before.states[-1, 0, position, :6]  # <S> and the words before
            backward = after.states[-1, 0, 1, 6:]  # the words after and </S>
            chances = [bundle.softmax.log_probs(way[None])[0] for way in (forward, backward)]
        assert result.forward[position] == pytest.approx(chances[0][ids[position]].item(), rel=1e-5)
        assert result.backward[position] == pytest.approx(
            chances[1][ids[position]].item(), rel=1e-5
        )


def test_dropout_is_off_while_scoring_and_stays_as_it_was(bundle):
    bundle.model.train()
    one, other = score(bundle, [["a", "storm"]] * 2)
    np.testing.assert_array_equal(one.forward, other.forward)
    assert bundle.model.training


def test_a_word_that_is_written_like_a_mark_is_unknown(bundle):
    one, other = score(bundle, [["</S>", "."], ["</S>", "."]])
    prefer(bundle, "</S>")
    (marked,) = score(bundle, [["</S>"]])
    assert marked.known == [False]
    assert marked.forward[0] < -5
    np.testing.assert_array_equal(one.backward, other.backward)


def test_sentences_of_a_batch_score_as_they_do_alone(bundle, monkeypatch):
    sentences = [line.split() for line in toy_corpus.sentences(10, seed=2)]
    sentences[3:3] = [[], ["</S>"], ["storm"] * 30]
    alone = list(score(bundle, sentences))
    for most in (50, 4096):
        monkeypatch.setattr(scoring, "_MAX_PADDED", most)
        for one, other in zip(score_batch(bundle, sentences), alone, strict=True):
            assert (one.tokens, one.known) == (other.tokens, other.known)
            np.testing.assert_allclose(one.forward, other.forward, rtol=0, atol=1e-5)
            np.testing.assert_allclose(one.backward, other.backward, rtol=0, atol=1e-5)


def test_one_long_sentence_does_not_make_a_batch_of_padding(bundle, monkeypatch):
    monkeypatch.setattr(scoring, "_MAX_PADDED", 60)
    run, shapes = NativeBiLM.run, []

    def watching(model, index, *ids):
        shapes.append(index.shape)
        return run(model, index, *ids)

    monkeypatch.setattr(NativeBiLM, "run", watching)
    score_batch(bundle, [["a"]] * 30 + [["a"] * 40])
    assert sorted(shapes) == [(1, 42), (10, 3), (20, 3)]


def test_an_empty_sentence_has_no_scores(bundle):
    (result,) = score(bundle, [[]])
    assert result.tokens == []
    assert result.forward.shape == result.backward.shape == (0,)


def test_a_model_without_a_softmax_says_where_to_get_one(bundle):
    with pytest.raises(DataError, match=r"has no softmax.*train it with 'elmore finetune'"):
        next(score(replace(bundle, softmax=None), [["a"]]))


def test_a_model_whose_folder_lacks_its_softmax_says_which_file(bundle):
    lacking = replace(bundle, softmax=None, lacks_softmax=True)
    with pytest.raises(DataError, match=r"put the model's softmax\.safetensors beside its model"):
        next(score(lacking, [["a"]]))


def test_a_lone_string_is_refused(bundle):
    with pytest.raises(DataError, match="expected a list of tokens"):
        next(score(bundle, ["a storm"]))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SoftmaxConfig(kind="full"), 1000),
        (SoftmaxConfig(kind="sampled"), 1000),
        (SoftmaxConfig(kind="adaptive"), 50),
        (SoftmaxConfig(kind="adaptive", cutoffs=(300,)), 300),
    ],
)
def test_a_probability_needs_all_words_or_the_frequent_ones_of_an_adaptive_softmax(
    config, expected
):
    assert count_normalized(build(config, 1000, 8), 1000) == expected
