"""Perplexity and bits per character, by hand and against scores of single sentences."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.errors import ConfigError, DataError
from elmore.lm import evaluate as evaluation
from elmore.lm import perplexity, scoring
from elmore.train.distributed import DistEnv
from elmore.weights import folder
from tests.support import toy_corpus
from tests.support.sweeps import pick


@pytest.fixture(scope="module")
def learned(corpus):
    """A model with strong opinions, all of them random."""
    training = toy_corpus.training(corpus, toy_corpus.recipe("model.dropout=0"))
    rng = np.random.RandomState(0)
    with torch.no_grad():
        for weight in training.module.parameters():
            weight.copy_(torch.from_numpy(0.5 * rng.standard_normal(tuple(weight.shape))))
    training.module.eval()
    return training


def measured(training, **options):
    tokens = training.corpus.split("valid")
    return perplexity.measure_perplexity(
        training.module, training._encoder, tokens, training._unknown_word_cost, **options
    )


def valid_sentences(corpus) -> list[list[str]]:
    tokens = corpus.split("valid")
    stream, types = tokens.take(np.arange(tokens.num_tokens)), list(corpus.types)
    cuts = [*tokens.starts.tolist(), tokens.num_tokens]
    return [[types[number] for number in stream[a + 1 : b]] for a, b in pairwise(cuts)]


@pytest.mark.parametrize("reset_state", [True, False])
def test_the_perplexity_of_a_model_of_zeros_is_the_vocabulary_size(corpus, reset_state):
    training = toy_corpus.training(corpus)
    torch.nn.init.zeros_(training.module.softmax.weight)
    result = measured(training, reset_state=reset_state)
    num_words = len(corpus.vocabulary)
    for value in (result.forward, result.backward, result.perplexity):
        assert value == pytest.approx(num_words, rel=1e-6)
    assert result.tokens == corpus.split("valid").num_tokens


def test_bits_per_character_by_hand(tmp_path):
    """Training text: a b b, four words and 4 bytes; unknown words are spelled by its bytes."""
    corpus = toy_corpus.prepare_corpus(
        tmp_path, "shards", ["b b", "b a"] * 15, ["b zab", "<S> b"], min_count=20
    )
    assert corpus.vocabulary.words == ("<S>", "</S>", "<UNK>", "b")
    training = toy_corpus.training(corpus, toy_corpus.recipe("stream.batch_size=1"))
    torch.nn.init.zeros_(training.module.softmax.weight)
    result = measured(training)
    # 60 words were seen: 45 times b, 15 times a, 60 times the end of a word; each is once more
    total = 60 + 60 + 257
    bits = {"a": -math.log2(16 / total), "b": -math.log2(46 / total), "end": -math.log2(61 / total)}
    never = -math.log2(1 / total)
    zab = never + bits["a"] + bits["b"] + bits["end"]
    mark = 3 * never + bits["end"]  # a word that is written <S> is a word, and unknown
    tokens = (2 + 1) + (2 + 1)  # the words, and the end of each sentence
    characters = (1 + 1) + (3 + 1) + (3 + 1) + (1 + 1)
    assert result.tokens == tokens
    assert result.oov == 2 / 4
    expected = (tokens * math.log2(4) + zab + mark) / characters
    assert result.bits_per_character == pytest.approx(expected, rel=1e-6)


def test_without_byte_counts_every_byte_costs_the_same(corpus, learned):
    free = replace(learned, byte_counts=[0] * 257)
    words = free._unknown_word_cost.count(corpus.split("valid"))
    bytes_ = sum(
        len(word.encode()) + 1
        for sentence in valid_sentences(corpus)
        for word in sentence
        if word not in corpus.vocabulary
    )
    assert words.unknown == 2
    assert words.unknown_bits == pytest.approx(bytes_ * math.log2(257))


def sentence_by_sentence(training) -> tuple[float, float]:
    """What both directions say of every word and every end, each sentence on its own."""
    bundle = training.bundle({})
    begin, end, _ = bundle.vocabulary.ids(bundle.vocabulary.marks)
    sentences = valid_sentences(training.corpus)
    totals = np.zeros(2)
    for sentence, scores in zip(sentences, scoring.score(bundle, sentences), strict=True):
        totals += scores.forward.sum(), scores.backward.sum()
        with torch.no_grad():
            stack, _ = bundle.run([sentence])
            ahead, behind = stack.states[-1, 0].chunk(2, dim=1)
            totals[0] += bundle.softmax.log_probs(ahead[[-2]])[0, end].item()
            totals[1] += bundle.softmax.log_probs(behind[[1]])[0, begin].item()
    return tuple(totals)


def test_with_a_reset_at_each_sentence_the_loss_is_the_sum_over_sentences(learned):
    result = measured(learned)
    forward, backward = sentence_by_sentence(learned)
    assert math.log(result.forward) == pytest.approx(-forward / result.tokens, rel=1e-6)
    assert math.log(result.backward) == pytest.approx(-backward / result.tokens, rel=1e-6)
    assert result.perplexity == pytest.approx(math.sqrt(result.forward * result.backward))


def test_carrying_the_state_changes_the_perplexity(learned):
    assert measured(learned, reset_state=False).forward != pytest.approx(
        measured(learned).forward, rel=1e-3
    )


@settings(max_examples=pick(4, 8))
@given(st.integers(1, 80), st.integers(1, 3))
def test_rows_and_ranks_only_share_the_work(learned, rows, size):
    expected = measured(learned)
    totals = []

    def adding(dist_env, values):
        totals.append(values)
        return torch.stack(totals).sum(dim=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perplexity, "all_reduce_sum", adding)
        for rank in range(size):
            result = measured(learned, batch_size=rows, dist_env=DistEnv(rank, size))
    assert result == pytest.approx(expected, rel=1e-6)


def test_words_that_are_merged_count_as_one(corpus, learned):
    """By hand: the probability of any of them is the sum of theirs."""
    merged = torch.tensor([2, 5, 9, 30])
    result = measured(learned, merged_ids=merged)
    bundle = learned.bundle({})
    _, end, _ = bundle.vocabulary.ids(bundle.vocabulary.marks)
    total = 0.0
    for sentence in valid_sentences(corpus):
        with torch.no_grad():
            stack, _ = bundle.run([sentence])
            chances = bundle.softmax.log_probs(stack.states[-1, 0].chunk(2, dim=1)[0]).exp()
        for position, word in enumerate([*bundle.vocabulary.ids(sentence), end]):
            some = merged if word in merged else [word]
            total -= math.log(chances[position, some].sum().item())
    assert math.log(result.forward) == pytest.approx(total / result.tokens, rel=1e-5)
    assert result.forward < measured(learned).forward


def test_a_model_that_excludes_a_word_has_infinite_perplexity(corpus):
    training = toy_corpus.training(corpus)
    with torch.no_grad():
        training.module.softmax.bias[0] = 1e6
    assert measured(training).forward == math.inf


def test_a_model_folder_is_measured_as_it_was_in_training(corpus, learned, tmp_path):
    learned.save(tmp_path / "model", {})
    seen = []
    result = evaluation.evaluate(
        tmp_path / "model", corpus.path, device="cpu", progress=lambda *now: seen.append(now)
    )
    assert result == measured(learned)
    assert seen[-1] == (1.0, result.tokens)
    everything = evaluation.evaluate(tmp_path / "model", corpus.path, split="all", device="cpu")
    assert everything.tokens == corpus.split("all").num_tokens


def test_invalid_evaluations_are_refused(corpus, learned, tmp_path):
    learned.save(tmp_path / "model", {})
    with pytest.raises(ConfigError, match="batch_size must be at least 1"):
        evaluation.evaluate(tmp_path / "model", corpus.path, batch_size=0)
    bare = replace(learned.bundle({}), softmax=None, vocabulary=None)
    folder.save(bare, tmp_path / "bare")
    with pytest.raises(DataError, match="has no softmax"):
        evaluation.evaluate(tmp_path / "bare", corpus.path)
