import math

import numpy as np
import pytest
import torch

import elmore
from elmore.errors import DataError
from elmore.lm.next_word import NextWord
from elmore.lm.scoring import score
from elmore.lm.surprisal import measure_surprisal
from elmore.text.tokenizers import whitespace
from elmore.text.written_words import split_text
from tests.support import toy_corpus


@pytest.fixture
def elmo(corpus) -> elmore.Embedder:
    bundle = toy_corpus.training(corpus).bundle({})
    with torch.no_grad():
        bundle.softmax.weight.mul_(20)  # so that contexts matter
    return elmore.Embedder(bundle, device="cpu")


def read(elmo, words):
    """The surprisal of each word, word by word."""
    predictor, bits = NextWord(elmo.bundle), []
    _, state = elmo.step([])
    for word in words:
        bits += predictor.surprisal([word], state).tolist()
        _, state = elmo.step([word], state)
    return bits


def test_word_by_word_the_surprisal_is_that_of_the_whole_sentence(elmo):
    words = ["the", "old", "bridge", "lies", "near", "the", "lake", "."]
    (scores,) = score(elmo.bundle, [words])
    np.testing.assert_allclose(read(elmo, words), -scores.forward / math.log(2), atol=1e-4)


def test_an_unknown_word_costs_its_spelling(elmo):
    words = ["the", "qwxzzy", "</S>", "lies"]
    rows = measure_surprisal(elmo.bundle, split_text(" ".join(words), tokenizer=whitespace))
    np.testing.assert_allclose(read(elmo, words), [row.forward for row in rows], rtol=1e-4)


def test_probabilities_sum_to_one(elmo):
    _, state = elmo.step(["the"])
    log_probs = NextWord(elmo.bundle).log_probs(state)
    assert log_probs.shape == (len(elmo.bundle.vocabulary),)
    assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-4)


def test_a_string_and_a_state_of_another_model_are_refused(elmo, corpus):
    _, state = elmo.step(["the"])
    with pytest.raises(DataError, match="a list of words is expected"):
        NextWord(elmo.bundle).surprisal("the", state)
    with pytest.raises(DataError, match=r"found NoneType; .*step\(\[\]\)"):
        NextWord(elmo.bundle).surprisal(["the"], None)
    elmo.bundle.model.forward_layers[0].bias.data.add_(1)
    with pytest.raises(DataError, match="the state is of the model"):
        NextWord(elmo.bundle).surprisal(["the"], state)
