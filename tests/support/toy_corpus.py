"""A toy language, its prepared corpus, and a recipe small enough to train on it in a second.

In each sentence a word depends on its neighbours. Drawn by `random.random()` alone, whose numbers
Python promises to keep.

Used by every test that trains a language model, and by conftest's `corpus`.
"""

import random
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from elmore import config
from elmore.corpus.options import PrepareOptions
from elmore.corpus.prepare import prepare
from elmore.corpus.shards import Corpus
from elmore.lm.config import PretrainConfig
from elmore.lm.pretrain import build_alphabet, build_model
from elmore.lm.trainable import LMTrainable
from elmore.train.distributed import SINGLE_PROCESS, DistEnv

NOUNS = {
    "the": ("river", "bank", "old bridge", "market", "quiet town", "night train"),
    "a": ("sailor", "teacher", "young pilot", "grey cat", "letter", "storm"),
    "two": ("sailors", "teachers", "ships", "letters", "small birds"),
}
VERBS = {
    "the": ("lies", "sleeps", "was built", "opens"),
    "a": ("waits", "comes", "walks", "was seen"),
    "two": ("wait", "come", "walk", "were seen"),
}
PLACES = ("near the lake", "behind the school", "in the morning", "at noon", "by the sea", "")
RARE = ("Zürich", "quixotic", "日本", "syzygy")
"""Each once or twice in a text: a small vocabulary does not list them."""

Item = TypeVar("Item")


def sentences(count: int, seed: int = 0, rare: Sequence[str] = RARE) -> list[str]:
    """Give tokenised sentences; every fortieth has a rare word in it."""
    chance = random.Random(seed)

    def one(of: Sequence[Item]) -> Item:
        return of[int(chance.random() * len(of))]

    result = []
    for number in range(count):
        article = one(tuple(NOUNS))
        parts = [article, one(NOUNS[article]), one(VERBS[article]), one(PLACES)]
        if rare and number % 40 == 7:
            parts.append(f"in {one(rare)}")
        parts.append(one((".", ".", "!")))
        result.append(" ".join(part for part in parts if part))
    return result


def prepare_corpus(
    folder: Path,
    name: str,
    train: Sequence[str],
    valid: Sequence[str] = (),
    **options: object,
) -> Corpus:
    """Prepare tokenised sentences in `folder / name`."""
    files = {}
    for split, lines in (("train", train), ("valid", valid)):
        files[split] = folder / f"{name}.{split}.txt"
        files[split].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return prepare(
        [str(files["train"])],
        folder / name,
        PrepareOptions(tokenized=True, **options),
        valid=[str(files["valid"])] if valid else [],
        num_workers=1,
    )


RECIPE = """
[model]
dropout = 0.3

[model.characters]
embedding_dim = 4
filters = [[1, 4], [2, 8]]
num_highways = 1

[model.lstm]
cell_dim = 12
output_dim = 6

[softmax]
num_samples = 40

[stream]
batch_size = 4
unroll_steps = 5
reset_probability = 0.5
shuffle_block = 64

[train]
steps = 24
lr = 0.02
warmup_steps = 4
log_every = 4
evaluate_every = 8
save_every = 8
"""
"""Small enough for a few dozen updates in a second, with everything a run can have."""


def recipe(*overrides: str) -> PretrainConfig:
    """Give that recipe as `--set` would change it."""
    table = config.apply_overrides(tomllib.loads(RECIPE), overrides)
    return config.build(PretrainConfig, table, "tests/support/toy_corpus.py")


def training(
    corpus: Corpus, settings: PretrainConfig | None = None, dist_env: DistEnv = SINGLE_PROCESS
) -> LMTrainable:
    """Give a new model of a recipe as something to train."""
    settings = settings or recipe()
    return LMTrainable(
        build_model(settings, corpus.vocabulary),
        corpus,
        corpus.vocabulary,
        build_alphabet(settings, corpus.vocabulary),
        settings.stream,
        settings.train.seed,
        dist_env,
    )
