"""The corpus on disk: what it gives back, and what it notices."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.corpus import blocks, merge
from elmore.corpus.options import PrepareOptions
from elmore.corpus.prepare import prepare
from elmore.corpus.shards import TokenStream, open_corpus
from elmore.errors import DataError
from elmore.text.vocabulary import Vocabulary

TEXT = "the cat sat\nthe dog sat down\n\nà b\n"


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "valid.txt").write_text("the bird\n")
    options = PrepareOptions(tokenized=True, min_count=1)
    return prepare(
        [str(tmp_path / "text.txt")],
        tmp_path / "out",
        options,
        valid=[str(tmp_path / "valid.txt")],
        num_workers=1,
    )


def test_types_are_ordered_by_count_then_as_strings_and_those_of_validation_last(corpus):
    words = ["<S>", "</S>", "sat", "the", "b", "cat", "dog", "down", "à", "bird"]
    assert list(corpus.types) == words
    assert corpus.counts.tolist() == [3, 3, 2, 2, 1, 1, 1, 1, 1, 0]
    assert corpus.vocabulary.words == ("<S>", "</S>", "<UNK>", *words[2:-1])


def test_types_are_a_sequence(corpus):
    assert (corpus.types[-1], corpus.types[0], corpus.types[8]) == ("bird", "<S>", "à")
    assert corpus.types[7:] == ["down", "à", "bird"]
    assert "dog" in corpus.types
    assert corpus.types.index("dog") == 6
    for number in (10, -11):
        with pytest.raises(IndexError):
            corpus.types[number]


def test_a_boundary_stands_before_each_sentence(corpus):
    tokens = corpus.split("train")
    assert tokens.take(np.arange(13)).tolist() == [0, 3, 5, 2, 0, 3, 6, 2, 7, 0, 8, 4, 0]
    assert tokens.starts.tolist() == [0, 4, 9]
    assert (tokens.num_tokens, tokens.num_words, tokens.num_sentences) == (12, 9, 3)


def test_all_is_training_text_then_validation_text(corpus):
    tokens = corpus.split("all")
    assert tokens.take(np.array([[11, 12], [13, 14]])).tolist() == [[4, 0], [3, 9]]
    assert tokens.starts.tolist() == [0, 4, 9, 12]
    assert corpus.split("valid").num_words == 2


def test_bytes_are_counted_over_the_words_of_the_training_text(corpus):
    counts = np.zeros(257, int)
    for word in TEXT.split():
        for byte in word.encode():
            counts[byte] += 1
        counts[256] += 1
    assert corpus.byte_counts.tolist() == counts.tolist()


def test_targets_are_looked_up_in_any_vocabulary(corpus):
    other = Vocabulary(("<UNK>", "sat", "<S>", "bird", "</S>"))
    assert corpus.word_ids(other).tolist() == [2, 4, 1, 0, 0, 0, 0, 0, 0, 3]


def test_the_index_counts_the_words_a_softmax_will_not_know(corpus):
    splits = corpus.index["splits"]
    assert (splits["train"]["num_unknown"], splits["valid"]["num_unknown"]) == (0, 1)


def test_a_sound_corpus_passes(corpus):
    corpus.verify()
    assert set(corpus.index["files"]) | {"index.json"} == {p.name for p in corpus.path.iterdir()}


FILES = [
    "train-00000.tokens.npy",
    "train-00000.sentences.npy",
    "valid-00000.tokens.npy",
    "types.utf8",
    "types.offsets.npy",
    "counts.npy",
    "vocabulary.txt",
]


@pytest.mark.parametrize("name", FILES)
def test_an_altered_file_is_named(corpus, name):
    data = bytearray((corpus.path / name).read_bytes())
    data[-1] ^= 1
    (corpus.path / name).write_bytes(data)
    with pytest.raises(DataError, match=f"{name}: altered or damaged"):
        open_corpus(corpus.path).verify()


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_found_at_once(corpus, name):
    path = corpus.path / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{name}: cut short: it has .* bytes, index.json says"):
        open_corpus(corpus.path)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(corpus, name):
    (corpus.path / name).unlink()
    with pytest.raises(DataError, match=f"{name}: missing"):
        open_corpus(corpus.path)


def test_an_invalid_array_is_named(corpus):
    path = corpus.path / "train-00000.tokens.npy"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DataError, match=r"tokens\.npy: not a readable array"):
        open_corpus(corpus.path).split("train")


def test_an_index_changed_by_hand_is_noticed(corpus):
    index = json.loads((corpus.path / "index.json").read_text())
    index["splits"]["train"]["num_words"] += 1
    (corpus.path / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=r"index\.json: altered or damaged"):
        open_corpus(corpus.path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "holds no index.json; run 'elmore prepare' first"),
        ("{", "not a readable JSON file"),
        ("[" * 100_000, "not a readable JSON file"),
        ("[]", "not the index of a corpus"),
        ('{"format": 3}', r"format 3 is newer than this elmore reads \(2\)"),
        ('{"format": 1}', "altered or damaged"),
    ],
)
def test_a_folder_that_is_no_corpus(tmp_path, text, found):
    if text is not None:
        (tmp_path / "index.json").write_text(text)
    with pytest.raises(DataError, match=found):
        open_corpus(tmp_path)


def test_neither_a_name_that_is_free_nor_a_file_is_a_corpus(tmp_path):
    (tmp_path / "file").write_text("x")
    for name in ("file", "nothing"):
        with pytest.raises(DataError, match=f"{name} holds no index.json"):
            open_corpus(tmp_path / name)


def test_a_split_that_is_not_there_says_how_to_get_one(tmp_path):
    (tmp_path / "text.txt").write_text("a b\n")
    made = prepare([str(tmp_path / "text.txt")], tmp_path / "out", PrepareOptions(), num_workers=1)
    with pytest.raises(DataError, match="has no valid text; prepare it with --valid"):
        made.split("valid")
    assert made.split("all").num_words == 2


def test_shards_are_of_bounded_size_and_read_as_one(tmp_path, monkeypatch):
    lines = [" ".join(f"w{i * j % 17}" for j in range(1 + i % 9)) for i in range(300)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(blocks, "MAX_CHARACTERS", 100)
    names, options = [str(tmp_path / "text.txt")], PrepareOptions(tokenized=True)
    one = prepare(names, tmp_path / "one", options, num_workers=1).split("train")
    monkeypatch.setattr(merge, "SHARD_TOKENS", 250)
    many = prepare(names, tmp_path / "many", options, num_workers=1)
    sizes = [shard["num_tokens"] for shard in many.index["splits"]["train"]["shards"]]
    assert len(sizes) > 3
    assert max(sizes) < 250 + 200
    tokens = many.split("train")
    positions = np.arange(tokens.num_tokens + 1)
    np.testing.assert_array_equal(tokens.take(positions), one.take(positions))
    np.testing.assert_array_equal(tokens.starts, one.starts)


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=4))
def test_the_first_start_after_a_position_and_tokens_over_several_shards(lengths):
    streams = [np.concatenate([[0] + [2] * n for n in shard]) for shard in lengths]
    tokens = TokenStream(streams, [np.flatnonzero(stream == 0) for stream in streams], 1 << 32)
    whole = [*np.concatenate(streams).tolist(), 0]
    positions = np.arange(len(whole))
    assert tokens.take(positions[::-1].reshape(1, -1)).tolist() == [whole[::-1]]
    starts = [i for i, token in enumerate(whole) if token == 0]
    assert tokens.starts.tolist() == starts[:-1]
    expected = [min(start for start in starts if start >= position) for position in positions]
    assert tokens.first_starts(positions).tolist() == expected


def test_positions_outside_the_text_are_refused(corpus):
    tokens = corpus.split("train")
    for position in (-1, 13):
        with pytest.raises(IndexError, match="outside 0 to 12"):
            tokens.take(np.array([0, position]))
    assert tokens.take(np.zeros((0, 3), int)).shape == (0, 3)
