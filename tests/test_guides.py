"""The commands of docs/guides run as they stand, on texts made up here.

But for two things, which take minutes: there are fewer updates, and what is fine-tuned is smaller.
"""

import random
import shlex
from pathlib import Path

import pytest

from elmore.lm import config
from elmore.model.bilm import BiLM
from elmore.model.softmax import Softmax, SoftmaxConfig
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.weights import folder
from elmore.weights.bundle import Bundle
from tests import documented
from tests.cli.running import elmore_command

GUIDES = Path(__file__).parent.parent / "docs" / "guides"
PAGES = [page for page in sorted(GUIDES.glob("*.md")) if documented.commands(page)]
LESS = ["--set", "stream.rows=4", "--set", "stream.steps=5", "--set"]
FEWER = {
    "pretrain": [*LESS, "train.steps=5"],
    "finetune": [*LESS, "train.steps=1"],
    "task train": ["--set", "train.epochs=2", "--set", "model.hidden_dim=20"],
}
WORDS = ["the", "a", "cat", "dog", "bank", "river", "saw", "took", "left", "old", "red", "house"]
NAMES = "Ann\tB-person\nLee\tI-person\nleft\tO\nRome\tB-location\n.\tO\n\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the files that the guides speak of."""
    draw = random.Random(0)
    sentences = [" ".join(draw.choices(WORDS, k=8)).capitalize() + "." for _ in range(30)]
    for name in ("text.txt", "articles.txt"):
        (tmp_path / name).write_text("\n\n".join(sentences) + "\n")
    for name in ("train.conll", "dev.conll"):
        (tmp_path / name).write_text(NAMES * 8)
    known = Vocabulary(("<S>", "</S>", "<UNK>", *WORDS, "."))
    softmax = Softmax(SoftmaxConfig(), len(known), 32)
    tiny = Bundle(BiLM(config.pretraining("tiny").model), ByteAlphabet(), known, softmax=softmax)
    folder.save(tiny, tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_guide_run(page, place):
    for line in documented.commands(page):
        program, *arguments = shlex.split(line)
        assert program == "elmore", line
        verb = " ".join(arguments[: 2 if arguments[0] == "task" else 1])
        arguments += FEWER.get(verb, [])
        if arguments[0] == "finetune":
            arguments[1] = "tiny"
        result = elmore_command(*arguments)
        assert result.code == 0, (line, result.err)
        if "-o" in arguments:
            assert (place / arguments[arguments.index("-o") + 1]).exists(), line


def test_the_guides_that_a_newcomer_follows_have_commands():
    assert {"language", "domain", "task", "bulk"} <= {page.stem for page in PAGES}
