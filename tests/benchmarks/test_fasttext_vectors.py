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


class FakeModel:
    """Vectors that depend on the letters alone, also for words it does not know."""

    words = ("Rome",)

    def get_word_vector(self, word: str) -> np.ndarray:
        return np.array([len(word), ord(word[0])], np.float32)


def test_every_word_of_a_task_gets_a_vector_in_a_format_that_tasks_read(script, tmp_path):
    counts = script.write_vectors(FakeModel(), tmp_path / "ner", ["Rome", "go\u00e9th", "a\u00a0b"])
    assert counts == {"words": 2, "in the corpus": 1}
    vectors = read_word_vectors(tmp_path / "ner.f16.npy")
    assert vectors.lookup(["go\u00e9th", "Rome"]).tolist() == [[5, 103], [4, 82]]
