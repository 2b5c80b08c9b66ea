"""benchmarks/fasttext_vectors.py without fastText: its corpus, and the files that it writes."""

import importlib
import sys

import numpy as np
import pytest

from elmore.corpus.shards import BOUNDARY, open_corpus
from elmore.tasks.embedding.word_vectors import read_word_vectors
from tests.support.cli_runner import run_elmore
from tests.test_paper import MODULES, ROOT

TEXT = "Dr. Lee can't go. He's in Rome!\nNo U.S. city \u2014 none.\n\nA \u00a0b.\n"


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("fasttext_vectors")
        for name in MODULES:
            sys.modules.pop(name, None)


def test_the_corpus_has_the_sentences_and_tokens_of_the_bilm(script, tmp_path):
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in files:
        path.write_text(TEXT, encoding="utf-8")
    script.write_corpus([str(path) for path in files], None, tmp_path / "corpus.txt", 1)
    ours = (tmp_path / "corpus.txt").read_text("utf-8").splitlines()
    run_elmore("prepare", *map(str, files), "-o", str(tmp_path / "shards"))
    corpus = open_corpus(tmp_path / "shards")
    stream = corpus.split("train")
    numbers = stream.take(np.arange(stream.num_tokens))
    words = [None if number == BOUNDARY else corpus.types[number] for number in numbers.tolist()]
    bounds = [i for i, word in enumerate(words) if word is None]
    ends = [*bounds[1:], len(words)]
    sentences = [" ".join(words[a + 1 : b]) for a, b in zip(bounds, ends, strict=True)]
    assert ours == sentences
    assert len(ours) == 8


def vector_of(word: str) -> np.ndarray:
    """Depends on the letters alone, so words that a corpus lacks have a vector too."""
    return np.array([len(word), ord(word[0]) / 10], np.float32)


def pack(script, path):
    words = ["Rome", "go\u00e9th", "a\u00a0b", "", "xs"]
    script.save_packed(path, words, vector_of, {"Rome": 3, "xs": 1, "of": 9})
    return script.load_packed(path)


def test_every_word_of_a_task_gets_a_vector_in_a_format_that_tasks_read(script, tmp_path):
    packed = pack(script, tmp_path / "vectors.npz")
    script.write_task(packed, tmp_path / "ner", ["Rome", "a\u00a0b", "go\u00e9th"])
    vectors = read_word_vectors(tmp_path / "ner.f16.npy")
    assert list(vectors.words) == ["Rome", "go\u00e9th"]
    assert np.abs(vectors.lookup(["Rome"]) - packed.lookup(["Rome"])).max() < 1e-3


def test_over_the_tokens_of_the_corpus_vectors_have_mean_0_and_one_deviation(script, tmp_path):
    """int8 keeps an element to half of a 127th of the largest one of its vector."""
    packed = pack(script, tmp_path / "vectors.npz")
    tokens = packed.lookup(["Rome", "Rome", "Rome", "xs"])
    assert np.abs(tokens.mean(axis=0)).max() < 0.01
    assert np.sqrt((tokens**2).mean()) == pytest.approx(script.STD, abs=0.01)
    rome, goeth, xs = packed.lookup(["Rome", "go\u00e9th", "xs"])
    between = (vector_of("go\u00e9th") - vector_of("Rome")) / (vector_of("xs") - vector_of("Rome"))
    assert (goeth - rome) / (xs - rome) == pytest.approx(between, abs=0.02)


def test_a_word_without_known_n_grams_has_the_mean_vector(script, tmp_path):
    path = tmp_path / "vectors.npz"
    vectors = {"Rome": [1.0, 2.0], "xs": [2.0, 5.0], "^^": [0.0, 0.0]}
    counts = {"Rome": 1, "xs": 1}
    script.save_packed(path, list(vectors), lambda word: np.array(vectors[word]), counts)
    rome, xs, unknown = script.load_packed(path).lookup(list(vectors))
    assert unknown.tolist() == [0.0, 0.0]
    assert rome + xs == pytest.approx([0.0, 0.0], abs=0.01)


def test_stored_vectors_have_the_words_of_every_task_or_the_task_is_refused(script, tmp_path):
    packed = pack(script, tmp_path / "vectors.npz")
    with pytest.raises(SystemExit, match=r"ner: 1 of its 2 words have no stored vector \('Oslo'"):
        script.write_task(packed, tmp_path / "ner", ["Oslo", "Rome"])
    assert not (tmp_path / "ner.f16.npy").exists()
