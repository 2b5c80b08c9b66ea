"""The commands of the guides run as they stand, on texts made up here.

But for two things, which take minutes: there are fewer updates, and what is fine-tuned is smaller.
"""

import gzip
import lzma
import random
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from elmore.lm import config
from elmore.model.bilm import BiLM
from elmore.model.softmax import Softmax, SoftmaxConfig
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.weights import folder
from elmore.weights.bundle import Bundle
from tests.support import doc_blocks, shell_commands
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm
from tests.support.own_cache import make_cache

PAGES = [page for page in doc_blocks.GUIDES if doc_blocks.commands(page)]
LESS = ["--set", "stream.batch_size=4", "--set", "stream.unroll_steps=5", "--set"]
FEWER = {
    "pretrain": [*LESS, "train.steps=5"],
    "finetune": [*LESS, "train.steps=1", "--set", "softmax_train.steps=1"],
    "task train": ["--set", "train.epochs=2", "--set", "model.hidden_dim=20"],
}
WORDS = ["the", "a", "cat", "dog", "bank", "river", "saw", "took", "left", "old", "play", "house"]
NAMES = "Ann\tB-person\nLee\tI-person\nleft\tO\nRome\tB-location\n.\tO\n\n"


@pytest.fixture
def directory(tmp_path, monkeypatch, rng):
    """A folder with the files that the guides speak of."""
    draw = random.Random(0)
    sentences = [" ".join(draw.choices(WORDS, k=8)).capitalize() + "." for _ in range(60)]
    write_texts(tmp_path, "\n\n".join(sentences) + "\n")
    write_table(tmp_path / "table.parquet", sentences)
    for name in ("train.conll", "dev.conll", "test.conll"):
        (tmp_path / name).write_text(NAMES * 8)
    rows = rng.normal(size=(len(WORDS), 50)).round(3).tolist()
    glove = [f"{word} {' '.join(map(str, row))}" for word, row in zip(WORDS, rows, strict=True)]
    (tmp_path / "glove.6B.50d.txt").write_text("\n".join(glove) + "\n")
    write_models(tmp_path, rng)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELMORE_CACHE", str(make_cache(tmp_path / "cache")))
    return tmp_path


def write_texts(directory: Path, text: str) -> None:
    for name in ("text.txt", "articles.txt", "corpus.txt", "more.txt"):
        (directory / name).write_text(text)
    for name in ("wiki", "corpus", "text"):
        (directory / name).mkdir()
    for number in range(2):
        (directory / f"text/{number}.txt.gz").write_bytes(gzip.compress(text.encode()))
        for name in ("wiki", "corpus"):
            (directory / f"{name}/{number}.txt.xz").write_bytes(lzma.compress(text.encode()))
    (directory / "valid.txt.xz").write_bytes(lzma.compress(text.encode()))


def write_table(path: Path, sentences: list[str]) -> None:
    parquet.write_table(pyarrow.table({"body": sentences}), path)


def write_models(directory: Path, rng: np.random.Generator) -> None:
    """One of ours to be fine-tuned, and published files."""
    known = Vocabulary(("<S>", "</S>", "<UNK>", *WORDS, "."))
    softmax = Softmax(SoftmaxConfig(), len(known), 32)
    shape = config.read_pretrain_recipe("tiny").model
    tiny = Bundle(BiLM(shape), ByteAlphabet(), known, softmax=softmax)
    folder.save(tiny, directory / "tiny")
    options = bilm_options()
    write_bilm(directory, options, bilm_weights(options, rng))


def smaller(arguments: list[str]) -> list[str]:
    """The same command, done in seconds."""
    verb = " ".join(arguments[: 2 if arguments[0] == "task" else 1])
    if arguments[0] == "finetune" and arguments[1] in ("english", "runs/first"):
        arguments = ["finetune", "tiny", *arguments[2:]]
    return [*arguments, *FEWER.get(verb, [])]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_guide_run(page, directory):
    for line in doc_blocks.commands(page):
        command = shell_commands.run(line, smaller)
        if command.into:
            assert (directory / command.into).stat().st_size, line
        if "-o" in command.arguments:
            written = directory / command.arguments[command.arguments.index("-o") + 1]
            assert written.exists(), line


def test_the_guides_that_a_newcomer_follows_have_commands():
    assert {"language", "domain", "task", "bulk", "gpus"} <= {page.stem for page in PAGES}
    assert {"embed", "neighbors", "seeing", "tasks", "train"} <= {page.stem for page in PAGES}
