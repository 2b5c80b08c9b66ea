"""Similarities of uses whose vectors are made by hand, against the definition pair by pair."""

import json
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import ConfigError, DataError
from elmore.probe import context, sample
from tests.support import toy_tasks
from tests.support.cli_runner import run_elmore


class PositionEmbedder:
    """Layer 0 knows the word alone, layer 1 its place too, layer 2 only the sentence."""

    num_layers, width = 3, 4

    def stream(self, texts, *, layers):
        assert layers == "all"
        for number, words in enumerate(texts):
            yield SimpleNamespace(vectors=self.vectors(words, number))

    def vectors(self, words, number):
        own = np.array([vector(word) for word in words])
        positions = np.array([vector(f"{word}{index}") for index, word in enumerate(words)])
        whole = np.tile(vector(f"s{number}"), (len(words), 1))
        return np.stack([own, own + positions, whole]).astype(np.float32)


def vector(name):
    return np.random.default_rng(list(name.encode())).normal(size=4) + 0.3


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


TEXT = [line.split() for line in ("a b a", "b a c", "c c b", "d a", "e")]


def every_use():
    """(word, vectors of the layers) of each token."""
    for number, words in enumerate(TEXT):
        vectors = PositionEmbedder().vectors(words, number)
        for index, word in enumerate(words):
            yield word, vectors[:, index]


def test_self_similarity_is_the_mean_over_pairs_of_uses_then_over_words():
    result = context.measure_contextuality(PositionEmbedder(), TEXT, min_uses=3)
    for layer in range(3):
        of_words = []
        for word in "abc":  # d and e have too few uses
            uses = [vectors[layer] for own, vectors in every_use() if own == word]
            of_words.append(np.mean([cosine(x, y) for x, y in combinations(uses, 2)]))
        assert result.layers[layer].self_similarity == pytest.approx(np.mean(of_words), abs=1e-5)
    assert result.layers[0].self_similarity == pytest.approx(1)
    assert (result.num_words, result.num_sentences, result.num_tokens) == (3, 5, 12)


def test_anisotropy_is_the_mean_cosine_of_uses_of_different_words():
    result = context.measure_contextuality(PositionEmbedder(), TEXT, min_uses=3)
    pairs = [(x, y) for (v, x), (w, y) in combinations(every_use(), 2) if v != w]
    for layer, one in enumerate(result.layers):
        expected = np.mean([cosine(x[layer], y[layer]) for x, y in pairs])
        assert one.anisotropy == pytest.approx(expected, abs=1e-5)
        corrected = one.self_similarity - one.anisotropy
        assert one.self_similarity_corrected == pytest.approx(corrected)
        assert one.intra_sentence_corrected == pytest.approx(one.intra_sentence - one.anisotropy)


def test_intra_sentence_similarity_compares_words_with_the_mean_of_their_sentence():
    result = context.measure_contextuality(PositionEmbedder(), TEXT, min_uses=3)
    for layer, one in enumerate(result.layers):
        of_sentences = []
        for number, words in enumerate(TEXT[:-1]):  # a lone word is its own mean
            vectors = PositionEmbedder().vectors(words, number)[layer]
            mean = vectors.mean(axis=0)
            of_sentences.append(np.mean([cosine(word, mean) for word in vectors]))
        assert one.intra_sentence == pytest.approx(np.mean(of_sentences), abs=1e-5)
    assert result.layers[2].intra_sentence == pytest.approx(1)


def test_sentences_that_come_again_count_once():
    once = context.measure_contextuality(PositionEmbedder(), TEXT, min_uses=3)
    assert context.measure_contextuality(PositionEmbedder(), TEXT + TEXT[:1], min_uses=3) == once


def test_words_are_sorted_by_what_the_top_layer_does_to_them():
    result = context.measure_contextuality(PositionEmbedder(), TEXT, min_uses=2, num_sentences=4)
    assert len(result.steadiest) == len(result.most_changed) == 1
    (steady,), (changed,) = result.steadiest, result.most_changed
    assert steady.self_similarity_corrected[-1] > changed.self_similarity_corrected[-1]


def test_fewer_words_and_sentences_can_be_drawn_and_the_seed_decides_which():
    few = context.measure_contextuality(PositionEmbedder(), TEXT, min_uses=3, max_words=1)
    assert few.num_words == 1
    assert few == context.measure_contextuality(
        PositionEmbedder(), iter(TEXT), min_uses=3, max_words=1
    )
    assert (
        context.measure_contextuality(
            PositionEmbedder(), TEXT, min_uses=2, num_sentences=3, seed=1
        ).num_sentences
        == 3
    )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ([["just", "one", "line"]], {}, "no word form occurs 5 times or more in 1 distinct"),
        ([], {}, "no word form occurs"),
        ([["a", "a"], ["a"]], {"min_uses": 2}, "'a' is the only word form of the text"),
    ],
)
def test_too_little_text_is_reported_in_one_sentence(text, options, message):
    with pytest.raises(DataError, match=message):
        context.measure_contextuality(PositionEmbedder(), text, **options)


@pytest.mark.parametrize("options", [{"min_uses": 1}, {"max_words": 0}, {"num_sentences": 0}])
def test_invalid_numbers_are_refused(options):
    with pytest.raises(ConfigError, match=r"at least|expected min_uses"):
        context.measure_contextuality(PositionEmbedder(), TEXT, **options)


@given(st.integers(0, 40), st.integers(1, 50), st.integers(0, 5))
def test_a_sample_keeps_the_order_and_never_exceeds_its_size(total, number, seed):
    result, seen = sample.reservoir_sample(range(total), number, seed)
    assert seen == total
    assert result == sorted(set(result))
    assert len(result) == min(total, number)
    assert set(result) <= set(range(total))


def test_every_item_has_the_same_chance_to_be_drawn():
    counts = np.zeros(10)
    for seed in range(2000):
        counts[sample.reservoir_sample(range(10), 3, seed)[0]] += 1
    assert abs(counts / 2000 - 0.3).max() < 0.04  # four deviations of such a share


def test_text_is_cut_as_asked():
    lines = ["It rains. He's out.", "", ["ready", "made"]]
    whole, ready = sample.tokenize_lines(lines)
    assert whole[-4:] == ["He", "'s", "out", "."]
    assert ready == ["ready", "made"]
    cut = list(sample.tokenize_lines(lines, split=True))
    assert cut == [["It", "rains", "."], ["He", "'s", "out", "."], ["ready", "made"]]
    assert list(sample.tokenize_lines(lines[:1], tokenized=True)) == [
        ["It", "rains.", "He's", "out."]
    ]


@pytest.fixture
def files(tmp_path):
    text = tmp_path / "text.txt"
    words = ["river", "bank", "money", "water", "boat"]
    order = np.random.default_rng(0)
    lines = [" ".join(order.choice(words, size=6)) for _ in range(20)]
    text.write_text("\n".join(lines))
    return str(text), str(toy_tasks.bilm(tmp_path / "bilm"))


def test_the_command_prints_a_row_for_each_layer(files):
    text, model = files
    done = run_elmore("probe", "context", text, "--model", model, "--device", "cpu")
    assert done.code == 0, done.err
    head, *rows = [line.split("\t") for line in done.out.splitlines()]
    assert head[:2] == ["layer", "self-similarity"]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert rows[0][1] == "1.000"  # a word's vector before any context
    assert float(rows[2][1]) < 1


def test_the_commands_json_has_every_digit(files):
    text, model = files
    command = ("probe", "context", text, "--model", model, "--min-uses", "3", "--json")
    result = json.loads(run_elmore(*command).out)
    assert result["num_words"] == 5
    assert result["layers"][1]["self_similarity"] == pytest.approx(
        result["layers"][1]["self_similarity_corrected"] + result["layers"][1]["anisotropy"]
    )
    assert json.loads(run_elmore(*command).out) == result


def test_the_command_refuses_a_corpus_of_one_line(files, tmp_path):
    (tmp_path / "one.txt").write_text("only one line here\n")
    done = run_elmore("probe", "context", str(tmp_path / "one.txt"), "--model", files[1])
    assert (done.code, done.out) == (1, "")
    assert "give more text, or pass a lower --min-uses" in done.err
    assert done.err.count("\n") == 1


def test_draws_of_one_word_alone_cannot_be_compared(monkeypatch):
    monkeypatch.setattr(context, "_RANDOM_OCCURRENCES", 2)
    text = [["a"] * number for number in range(2, 60)] + [["b"]]
    with pytest.raises(DataError, match="the sampled occurrences are all of 'a'; give more text"):
        context.measure_contextuality(PositionEmbedder(), text, min_uses=2)
