"""Surprisal of written words, by models whose probabilities are known."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from elmore.errors import ConfigError, DataError
from elmore.lm import surprisal
from elmore.lm.scoring import score
from elmore.lm.surprisal import measure_surprisal
from elmore.lm.surprisal_table import table_rows, word_rows
from elmore.lm.unknown_word_cost import UnknownWordCost
from elmore.text.csv_table import Table
from elmore.text.tokenizers import whitespace
from elmore.text.written_words import join_words, split_text
from elmore.weights.bundle import Bundle
from tests.support import toy_corpus

BITS = 1 / math.log(2)


@pytest.fixture
def bundle(corpus) -> Bundle:
    bundle = toy_corpus.training(corpus).bundle({})
    with torch.no_grad():
        bundle.softmax.weight.mul_(20)  # so that contexts matter
    return bundle


def column(rows, name):
    return np.array([getattr(row, name) for row in rows], dtype=float)


def tokens(text):
    return split_text(text, tokenizer=whitespace)


def log_probs(bundle, sentence, position):
    """Give the logarithms of both distributions at a position, from the sentence cut there."""
    width = bundle.config.lstm.output_dim
    with torch.no_grad():
        before, _ = bundle.run([sentence[:position]])
        after, _ = bundle.run([sentence[position + 1 :]])
        states = before.states[-1, :, position, :width], after.states[-1, :, 1, width:]
        return [bundle.softmax.log_probs(state)[0].double().numpy() for state in states]


def test_words_have_the_bits_that_score_gives(bundle):
    text = "the river lies . two ships come !"
    rows = measure_surprisal(bundle, tokens(text))
    one, other = score(bundle, [text.split()[:4], text.split()[4:]])
    for name in ("forward", "backward"):
        expected = -np.concatenate([getattr(one, name), getattr(other, name)]) * BITS
        np.testing.assert_allclose(column(rows, name), expected, rtol=1e-4)
    assert [(row.word, row.sentence, row.position) for row in rows[3:6]] == [
        (".", 0, 3), ("two", 1, 0), ("ships", 1, 1)
    ]  # fmt: skip


def test_entropy_and_both_follow_from_the_two_distributions(bundle):
    sentence = ["the", "river", "lies", "."]
    rows = measure_surprisal(bundle, tokens(" ".join(sentence)))
    vocabulary = bundle.vocabulary
    ranks = np.arange(len(vocabulary))
    prior = np.log((ranks + 2) / (ranks + 1)) / np.log(len(vocabulary) + 1)
    assert prior.sum() == pytest.approx(1)
    for position, row in enumerate(rows):
        forward, backward = log_probs(bundle, sentence, position)
        joint = np.exp(forward + backward) / prior
        joint[vocabulary.ids(["<S>", "</S>"])] = 0
        (target,) = vocabulary.ids([sentence[position]])
        assert row.entropy == pytest.approx(-(np.exp(forward) * forward).sum() * BITS, rel=1e-4)
        assert row.both == pytest.approx(-np.log2(joint[target] / joint.sum()), rel=1e-3, abs=1e-3)
        assert row.gain == row.forward - row.both
        assert row.unigram == pytest.approx(-np.log2(prior[target]))


def test_a_word_is_the_sum_of_its_tokens_without_its_punctuation(bundle):
    apart = measure_surprisal(bundle, tokens("two ships , old bridge ."))
    two, ships, comma, old, bridge, _ = apart
    rows = measure_surprisal(bundle, join_words(["two ships,", "old bridge."]))
    for row, parts in zip(rows, [(two, ships), (old, bridge)], strict=True):
        for name in ("forward", "backward", "both", "unigram"):
            expected = sum(getattr(part, name) for part in parts)
            assert getattr(row, name) == pytest.approx(expected, rel=1e-4)
        assert row.entropy == pytest.approx(parts[0].entropy, rel=1e-4)
        assert row.entropy != pytest.approx(parts[1].entropy, rel=1e-4)
        assert row.tokens == 2
    assert [row.length for row in rows] == [8, 9]
    assert (comma.length, comma.tokens) == (1, 1)  # nothing but punctuation: it counts


def test_an_unknown_word_costs_its_spelling_too(bundle):
    known, word = measure_surprisal(bundle, tokens("two xylophones"))
    (result,) = score(bundle, [["two", "xylophones"]])
    unknown = bundle.vocabulary.ids(["<UNK>"])
    spelling = UnknownWordCost(["xylophones"], unknown, int(unknown[0]), bundle.byte_counts).bits[0]
    assert (known.known, word.known) == (True, False)
    assert spelling > 20
    assert word.forward == pytest.approx(-result.forward[1] * BITS + spelling, rel=1e-4)
    assert word.backward == pytest.approx(-result.backward[1] * BITS + spelling, rel=1e-4)
    assert word.both > spelling


def test_a_word_that_is_written_like_a_mark_is_unknown(bundle):
    assert [row.known for row in measure_surprisal(bundle, tokens("two </S>"))] == [True, False]


def test_a_number_of_words_hides_what_is_farther_away(bundle):
    first, second = "two small ships come at noon", "a small ships come at sea"
    one, other = (measure_surprisal(bundle, tokens(text), context="2") for text in (first, second))
    same = partial(pytest.approx, rel=1e-5)
    assert one[3].forward == same(other[3].forward)  # both after "small ships"
    assert one[2].forward != same(other[2].forward)
    assert one[2].backward == same(other[2].backward)  # both before "come at"
    assert one[3].backward != same(other[3].backward)


def test_a_text_is_read_across_its_sentences_and_a_sentence_is_not(bundle):
    texts = [tokens("two ships come . a storm waits ."), tokens("the bank opens . a storm waits .")]
    sentence, whole = (
        [measure_surprisal(bundle, text, context=context) for text in texts]
        for context in ("sentence", "text")
    )
    assert sentence[0][5].forward == pytest.approx(sentence[1][5].forward, rel=1e-5)
    assert whole[0][5].forward != pytest.approx(whole[1][5].forward, rel=1e-5)
    stream = [*["two", "ships", "come", "."], "</S>", "<S>", *["a", "storm", "waits", "."]]
    (marked,) = score(bundle, [stream])
    assert whole[0][5].forward == pytest.approx(-marked.forward[7] * BITS, rel=1e-4)


@pytest.mark.parametrize("context", ["sentence", "text", "1"])
def test_a_text_without_words_has_no_rows_and_an_empty_region_no_numbers(bundle, context):
    assert measure_surprisal(bundle, split_text(" \n"), context=context) == []
    row, _ = measure_surprisal(bundle, join_words(["", "ships"]), context=context)
    assert (row.length, row.forward, row.known) == (0, None, None)


@pytest.mark.parametrize("context", ["0", "-1", "words", "", "²"])
def test_a_context_that_is_none_is_named(bundle, context):
    with pytest.raises(ConfigError, match="a number of words from 1, found"):
        measure_surprisal(bundle, split_text("two ships"), context=context)


def test_chunks_do_not_change_the_numbers(bundle, monkeypatch):
    text = tokens("two ships come at noon . a storm waits .")
    whole = measure_surprisal(bundle, text)
    monkeypatch.setattr(surprisal, "_CHUNK", 3)
    for one, other in zip(measure_surprisal(bundle, text), whole, strict=True):
        assert one[9:] == pytest.approx(other[9:], rel=1e-5)


def test_spill_over_columns_are_those_of_the_words_before(bundle):
    words = measure_surprisal(bundle, tokens("two ships come"))
    rows = word_rows(words, spillover=2)
    assert [row["forward_1"] for row in rows] == [None, words[0].forward, words[1].forward]
    assert [row["unigram_2"] for row in rows] == [None, None, words[0].unigram]


def test_spill_over_passes_over_empty_regions(bundle):
    words = ["two", "ships", "come"]
    one, two, three = word_rows(measure_surprisal(bundle, join_words(words)))
    words.insert(1, "")
    first, empty, second, third = word_rows(measure_surprisal(bundle, join_words(words)))
    assert first["forward_1"] is second["forward_2"] is one["forward_1"] is None
    same = partial(pytest.approx, rel=1e-5)
    assert empty["forward_1"] == second["forward_1"] == same(two["forward_1"])
    assert [third["length_1"], third["unigram_2"]] == same([three["length_1"], three["unigram_2"]])


class Measured:
    """Counts the texts that are measured."""

    def __init__(self, bundle):
        self.bundle, self.texts, self.done = bundle, [], []

    def __call__(self, text, done):
        self.texts.append(text.text)
        self.done.append(done)
        return measure_surprisal(self.bundle, text)


def rows_of(bundle, rows, **options):
    table = Table("t.csv", ["story", "reader", "w", "rt"], rows, ",")
    measure = Measured(bundle)
    result = list(table_rows(table, "w", measure, split=split_text, join=join_words, **options))
    return result, measure.texts


def test_readers_of_one_text_get_its_numbers_in_the_order_of_the_rows(bundle):
    words = [("1", "two"), ("2", "a"), ("1", "ships"), ("2", "storm")]
    rows = [[story, reader, word, "9"] for story, word in words for reader in "ab"]
    result, texts = rows_of(bundle, rows, by=["story", "reader"])
    assert texts == ["two ships", "a storm"]
    assert [[row[name] for name in ("story", "reader", "w", "rt")] for row in result] == rows
    assert "word" not in result[0]
    expected = [
        row.forward for text in texts for row in measure_surprisal(bundle, split_text(text))
    ]
    found = [row["forward"] for row in result]
    assert found == [expected[i] for i in (0, 0, 2, 2, 1, 1, 3, 3)]


def test_a_row_with_a_text_is_repeated_for_its_words(bundle):
    result, _ = rows_of(bundle, [["1", "a", "two ships", "9"], ["2", "a", "", "8"]])
    assert [(row["story"], row["word"], row["start"]) for row in result] == [
        ("1", "two", 0), ("1", "ships", 4)
    ]  # fmt: skip


def test_progress_counts_texts_that_are_measured_once(bundle):
    rows = [[*row, "9"] for row in (("1", "a", "two"), ("1", "b", "two"), ("2", "a", "a"))]
    rows += [["2", "a", "storm", "9"], ["2", "a", "waits", "9"]]
    table, ways = Table("t.csv", ["s", "r", "w", "rt"], rows, ","), {"split": split_text}
    words, cells = Measured(bundle), Measured(bundle)
    list(table_rows(table, "w", words, join=join_words, by=["s", "r"], **ways))
    assert words.done == [1 / 4, 1]
    list(table_rows(table, "w", cells, join=join_words, **ways))
    assert cells.done == [1 / 5, 2 / 5, 3 / 5, 4 / 5, 1]


def test_a_column_is_never_written_over(bundle):
    table = Table("t.csv", ["w", "entropy"], [["two", "1"]], ",")
    ways = {"split": split_text, "join": join_words}
    with pytest.raises(DataError, match=r"has a column 'entropy' already, .* pass --prefix"):
        list(table_rows(table, "w", Measured(bundle), **ways))
    (row,) = table_rows(table, "w", Measured(bundle), prefix="lm_", **ways)
    assert row["entropy"] == "1"
    assert row["lm_entropy"] > 0


def test_a_word_with_a_lone_surrogate_costs_the_spelling_that_the_model_reads(bundle):
    one, other = (
        measure_surprisal(bundle, tokens("qq\ud800 .")),
        measure_surprisal(bundle, tokens("qq .")),
    )
    assert not one[0].known
    np.testing.assert_array_equal(column(one, "both"), column(other, "both"))
