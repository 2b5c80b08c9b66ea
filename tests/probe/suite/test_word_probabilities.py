"""Probabilities from the embedder's vectors against those of lm.scoring."""

import numpy as np
import pytest
import torch

from elmore.embed.embedder import Embedder
from elmore.lm import scoring
from elmore.probe.suite.word_probabilities import WordProbabilities

SENTENCES = [["the", "river", "lies", "quixotic", "."], ["two"], ["a", "<S>", "storm"]]


def test_log_probabilities_are_those_of_the_language_model(elmo):
    model = WordProbabilities(elmo)
    expected = scoring.score_batch(elmo.bundle, SENTENCES)
    for (forward, backward), words, scores in zip(
        model.stream_states(SENTENCES), SENTENCES, expected, strict=True
    ):
        np.testing.assert_allclose(model.log_probs(forward, words), scores.forward, rtol=1e-5)
        np.testing.assert_allclose(model.log_probs(backward, words), scores.backward, rtol=1e-5)


def test_all_log_probabilities_contain_those_of_the_words(elmo):
    model = WordProbabilities(elmo)
    words = SENTENCES[0]
    ((forward, _),) = model.stream_states([words])
    table = model.all_log_probs(forward)
    np.testing.assert_allclose(np.exp(table).sum(axis=1), 1, rtol=1e-4)
    found = table[np.arange(len(words)), model.ids(words)]
    np.testing.assert_allclose(found, model.log_probs(forward, words), rtol=1e-5)


def test_the_softmax_has_the_precision_of_the_embedder(elmo):
    fast = Embedder(elmo.bundle, device="cpu", precision="fast")
    if not fast.is_fast:
        pytest.skip("this CPU has no int8 dot products")
    words = SENTENCES[0]
    ((states, _),) = WordProbabilities(elmo).stream_states([words])
    exact, found = (WordProbabilities(each).log_probs(states, words) for each in (elmo, fast))
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.1)
    assert not np.array_equal(found, exact)


def test_the_softmax_of_the_bundle_stays_on_its_device(elmo, monkeypatch):
    monkeypatch.setattr(Embedder, "device", torch.device("meta"))
    WordProbabilities(elmo)
    assert {weight.device.type for weight in elmo.bundle.softmax.parameters()} == {"cpu"}


def test_words_outside_the_vocabulary_have_the_unknown_id(elmo):
    model = WordProbabilities(elmo)
    assert (model.ids(["xylophone", "<S>"]) == model.unknown_id).all()
    assert model.ids(["river"])[0] != model.unknown_id
