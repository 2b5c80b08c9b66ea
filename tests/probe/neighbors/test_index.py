import json
import re
from dataclasses import replace

import numpy as np
import pytest

from elmore.embed.embedder import Embedder
from elmore.embed.loading import load
from elmore.errors import ConfigError, DataError
from elmore.probe.neighbors.index import Neighbor, OccurrenceIndex
from tests.support import simulated_bf16, toy_tasks
from tests.support.toy_index import LINES, build_index, write_text
from tests.support.toy_whitening import make_whitening


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return toy_tasks.bilm(tmp_path_factory.mktemp("model") / "bilm")


@pytest.fixture(scope="module")
def elmo(model):
    return load(model, device="cpu")


def naive(elmo, lines, tokens, position, *, word=None, layer=2) -> list[tuple[float, int, int]]:
    """Every use by its cosine, from the definition: (cosine, line, position)."""

    def vectors(words):
        chosen = elmo.embed([words], layers=layer)[0].vectors
        return chosen / np.linalg.norm(chosen, axis=1, keepdims=True)

    query = vectors(tokens)[position]
    result = [
        (float(vector @ query), number, place)
        for number, words in enumerate(line.split() for line in lines)
        if words and words != tokens
        for place, vector in enumerate(vectors(words))
        if word is None or words[place] == word
    ]
    return sorted(result, reverse=True)


@pytest.mark.parametrize("layer", [0, 1, 2, "average", "cloze"])
@pytest.mark.parametrize("word", [None, "play"])
def test_the_nearest_occurrences_have_the_highest_cosine(tmp_path, elmo, layer, word):
    index = build_index(tmp_path, elmo, layers=["all", "average", "cloze"])
    tokens = ["the", "play", "was", "long"]
    result = index.search(tokens, 1, 8, word=word, layer=layer)
    expected = naive(elmo, LINES, tokens, 1, word=word, layer=layer)
    cosines = {(line, place): cosine for cosine, line, place in expected}
    highest = [cosine for cosine, *_ in expected][:8]
    np.testing.assert_allclose([use.similarity for use in result], highest, atol=1e-3)
    assert len({(use.line, use.position) for use in result}) == len(result)
    for use in result:
        assert use.similarity == pytest.approx(cosines[use.line, use.position], abs=1e-3)
        assert use.tokens == LINES[use.line].split()
        assert use.word == use.tokens[use.position]
        assert word in (None, use.word)


def test_the_sentence_that_is_asked_for_is_not_its_own_neighbour(tmp_path, elmo):
    index = build_index(tmp_path, elmo, lines=[*LINES, LINES[0]])
    result = index.search(LINES[0].split(), 1, 100)
    assert {use.line for use in result} == {2, 3, 4}
    assert len(result) == 11


def test_an_occurrence_is_numbered_by_its_position_in_the_text(tmp_path, elmo):
    index = build_index(tmp_path, elmo)
    assert index.occurrence(1) == Neighbor("play", LINES[0].split(), 1, 1.0, 0)
    assert index.occurrence(len(index) - 1) == Neighbor("end", ["the", "end"], 1, 1.0, 4)
    assert (len(index), index.num_sentences, index.layers) == (16, 4, ("2",))


def test_raw_text_is_split_into_sentences_and_tokens(tmp_path, elmo):
    pytest.importorskip("sentencex")
    file = write_text(tmp_path / "raw.txt", ["It's a play. They left.", "", "Good!"])
    index = OccurrenceIndex.build(tmp_path / "index", elmo, [file])
    result = [(use.line, use.tokens) for use in map(index.occurrence, [0, 5, 8])]
    assert result == [
        (0, ["It", "'s", "a", "play", "."]),
        (0, ["They", "left", "."]),
        (2, ["Good", "!"]),
    ]


@pytest.mark.parametrize("name", ["layer-2.f16", "words.i32", "sentences.i64", "words.jsonl"])
@pytest.mark.parametrize("gone", [True, False])
def test_an_index_cut_short_is_refused_by_name(tmp_path, elmo, name, gone):
    build_index(tmp_path, elmo)
    path = tmp_path / "index" / name
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    if gone:
        path.unlink()
    with pytest.raises(DataError, match=rf"{name}: truncated: \d+ bytes, expected {len(data)}"):
        OccurrenceIndex.open(tmp_path / "index", elmo)


@pytest.mark.parametrize("name", ["words.i32", "sentences.i64", "words.jsonl"])
def test_a_damaged_column_is_refused_by_name(tmp_path, elmo, name):
    build_index(tmp_path, elmo)
    path = tmp_path / "index" / name
    data = bytearray(path.read_bytes())
    data[2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"{name}: damaged"):
        OccurrenceIndex.open(tmp_path / "index", elmo)


def test_an_index_of_another_model_is_refused_and_both_are_named(tmp_path, elmo, model):
    index = build_index(tmp_path, elmo)
    other = load(toy_tasks.bilm(tmp_path / "other", seed=1), device="cpu")
    with pytest.raises(DataError, match=r"index: an index of another model: built with .*searched"):
        OccurrenceIndex.open(index.folder, other)
    with pytest.raises(DataError, match="an index of another model"):
        OccurrenceIndex.build(index.folder, other, [tmp_path / "index.txt"], tokenized=True)
    with pytest.raises(DataError, match="initial state 'warm'"):
        OccurrenceIndex.open(index.folder, load(model, device="cpu", initial_state="warm"))


def test_an_index_is_searched_in_the_precision_it_was_built_in(tmp_path, elmo, model, monkeypatch):
    simulated_bf16.simulate_bf16_units(monkeypatch)
    fast = load(model, device="cpu", precision="fast")
    indexes = [build_index(tmp_path, one, name) for one, name in ((elmo, "exact"), (fast, "fast"))]
    exact_rows, fast_rows = (index.vectors(np.arange(16)) for index in indexes)
    assert not np.array_equal(exact_rows, fast_rows)
    for index, other, built, searched in (
        (indexes[0], fast, "exact", "fast"),
        (indexes[1], elmo, "fast", "exact"),
    ):
        message = (
            f"{index.folder}: built in {built} precision, this model runs in {searched}; pass "
            f"--precision {built} (precision='{built}' in Python), or build another index: elmore "
            f"neighbors MODEL TEXT --index OTHER_FOLDER --precision {searched}"
        )
        with pytest.raises(DataError, match=re.escape(message)):
            OccurrenceIndex.open(index.folder, other)
        with pytest.raises(DataError, match=re.escape(message)):
            build_index(tmp_path, other, built)
    assert OccurrenceIndex.open(indexes[1].folder, fast).search(["play"], 0, 1)


def test_where_nothing_is_fast_a_fast_index_cannot_be_searched(tmp_path, model, monkeypatch):
    with monkeypatch.context() as patch:
        simulated_bf16.simulate_bf16_units(patch)
        index = build_index(tmp_path, load(model, device="cpu", precision="fast"))
    simulated_bf16.disable_fast_units(monkeypatch)
    slow = load(model, device="cpu", precision="fast")
    with pytest.raises(DataError, match="in exact, because nothing else is faster here; build an"):
        OccurrenceIndex.open(index.folder, slow)
    build_index(tmp_path, slow, "slow")
    assert len(OccurrenceIndex.open(tmp_path / "slow", load(model, device="cpu"))) == 16


def test_an_index_of_an_earlier_format_is_searched_in_any_precision(tmp_path, elmo, monkeypatch):
    path = build_index(tmp_path, elmo).folder / "index.json"
    manifest = json.loads(path.read_text())
    del manifest["precision"]
    path.write_text(json.dumps({**manifest, "format": 2}))
    simulated_bf16.simulate_bf16_units(monkeypatch)
    for precision in ("exact", "fast"):
        embedder = Embedder(elmo.bundle, device="cpu", precision=precision)
        assert len(OccurrenceIndex.open(path.parent, embedder)) == 16


def test_a_layer_that_is_not_stored_is_refused(tmp_path, elmo):
    index = build_index(tmp_path, elmo)
    with pytest.raises(ConfigError, match=r"layer 1: .* stores 2"):
        index.search(["a"], 0, layer=1)
    with pytest.raises(DataError, match="stores layers 2, asked for average"):
        build_index(tmp_path, elmo, layers=["average"])
    with pytest.raises(ConfigError, match="layers 0 to 2"):
        build_index(tmp_path, elmo, "new", layers=["3"])
    assert index.search(["a"], 0, layer="top") == index.search(["a"], 0, layer=2)


def test_an_invalid_query_is_refused(tmp_path, elmo):
    index = build_index(tmp_path, elmo)
    with pytest.raises(DataError, match=r"'Play': does not occur among the 16 .*; there is 'play'"):
        index.search(["Play"], 0, word="Play")
    with pytest.raises(DataError, match=r"does not occur among the 16 occurrences of [^;]*$"):
        index.search(["it"], 0, word="zebra")
    with pytest.raises(DataError, match="position 1 is not in a sentence of 1 tokens"):
        index.search(["it"], 1)
    with pytest.raises(ConfigError, match="k=0"):
        index.search(["it"], 0, 0)
    with pytest.raises(DataError, match="expected a list of tokens"):
        index.search("it", 0)


def test_a_corpus_of_one_line_has_no_other_occurrences(tmp_path, elmo):
    index = build_index(tmp_path, elmo, lines=["the play was good"])
    assert len(index.search(["a", "play"], 1, 10)) == 4
    assert index.search(["the", "play", "was", "good"], 1, 10) == []
    assert index.search(["the", "play", "was", "good"], 1, 10, word="play") == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"format": 9}', "format 9 is newer than this elmore reads"),
        ("{}", "format is None, expected a number"),
        ('{"format": 1}', "missing key 'model'"),
        ("{", "not a readable JSON file"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path, elmo, content, said):
    build_index(tmp_path, elmo)
    (tmp_path / "index" / "index.json").write_text(content)
    with pytest.raises((DataError, ConfigError), match=rf"index\.json: .*{said}"):
        OccurrenceIndex.open(tmp_path / "index", elmo)


def test_the_top_layer_is_compared_by_when_nothing_is_said(tmp_path, elmo):
    index = build_index(tmp_path, elmo, layers=["top", "1", "average"])
    query = ["the", "play"], 1, 3
    assert index.search(*query) == index.search(*query, layer="top")
    assert index.search(*query) != index.search(*query, layer="average")
    without = build_index(tmp_path, elmo, "other", layers=["0", "1"])
    assert without.search(*query) == without.search(*query, layer=1)


def test_whitened_vectors_are_compared_by_default_and_only_by_their_own_whitening(tmp_path, elmo):
    made = make_whitening(elmo)
    whitening = Embedder(replace(elmo.bundle, whitening=made), device="cpu")
    index = build_index(tmp_path, whitening)
    assert (index.layers, index.layer) == (("whitened",), "whitened")
    tokens = ["the", "play", "was", "long"]
    result = index.search(tokens, 1, 8)
    expected = naive(whitening, LINES, tokens, 1, layer="whitened")
    assert [one.similarity for one in result] == pytest.approx(
        [cosine for cosine, *_ in expected[:8]], abs=1e-3
    )
    other = replace(elmo.bundle, whitening=replace(made, mean=made.mean + 1))
    for bundle in (elmo.bundle, other):
        with pytest.raises(DataError, match="built with another whitening of"):
            OccurrenceIndex.open(tmp_path / "index", Embedder(bundle, device="cpu"))
    with pytest.raises(ConfigError, match="this model has no whitening"):
        build_index(tmp_path, elmo, "new", layers=["whitened"])


def test_an_index_knows_its_words_as_they_are_written_and_its_layer(tmp_path, elmo):
    index = build_index(tmp_path, elmo, layers=["0"])
    assert "play" in index
    assert "Play" not in index
    assert index.layer == 0
