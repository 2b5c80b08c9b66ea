"""WiC: whether a word has the same sense in two contexts (Pilehvar and Camacho-Collados, 2019).

The answer is yes if the cosine of the two vectors of the word reaches a threshold. The threshold of
each layer is the best on the training pairs.

Shapes: L layers and their average, N pairs, D width.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.errors import DataError
from elmore.numbers import parse_uint
from elmore.probe.cosine import normalize
from elmore.probe.estimates import choose_threshold, estimate_ratio
from elmore.probe.suite.embeddings import Tokens, embed_layers, layer_names
from elmore.probe.suite.files import find_file, find_files
from elmore.probe.suite.scores import Progress, Score
from elmore.text.files import numbered_lines


class WordInContext(NamedTuple):
    """A sentence and the position of the word."""

    tokens: Tokens
    position: int


class ContextPair(NamedTuple):
    """Two contexts of a word, and whether its sense is the same."""

    first: WordInContext
    second: WordInContext
    same: bool


class WiC(NamedTuple):
    """Pairs that set thresholds, pairs that choose the layer, and pairs to score."""

    train: list[ContextPair]
    dev: list[ContextPair]
    test: list[ContextPair]
    split: str
    """Where `test` is from: the published test pairs have no labels, then these are dev's."""


def read_wic(folder: Path) -> WiC:
    """Read `train/train.data.txt`, `train/train.gold.txt` and so on.

    If the labels of the test pairs are missing, the pairs of dev are scored, and the layer is
    chosen on train.
    """
    train, dev = (_read_split(folder, name) for name in ("train", "dev"))
    if find_files(folder / "test", "test.gold.txt"):
        return WiC(train, dev, _read_split(folder, "test"), "test")
    return WiC(train, train, dev, "dev")


def _read_split(folder: Path, name: str) -> list[ContextPair]:
    data, gold = (find_file(folder / name, f"{name}.{kind}.txt") for kind in ("data", "gold"))
    labels = [_parse_label(where, line) for where, line in numbered_lines(gold)]
    lines = list(numbered_lines(data))
    if len(lines) != len(labels) or not lines:
        raise DataError(
            f"{data} has {len(lines)} lines and {gold.name} {len(labels)}: expected one label for "
            "each pair"
        )
    return [
        ContextPair(*_parse_contexts(where, line), label)
        for (where, line), label in zip(lines, labels, strict=True)
    ]


def _parse_label(where: str, line: str) -> bool:
    if line.strip() not in ("T", "F"):
        raise DataError(f"{where}: expected the label T or F, found {line[:40]!r}")
    return line.strip() == "T"


def _parse_contexts(where: str, line: str) -> tuple[WordInContext, WordInContext]:
    fields = line.split("\t")
    indices = [parse_uint(text) for text in fields[2].split("-")] if len(fields) == 5 else []
    positions = [position for position in indices if position is not None]
    if len(indices) != 2 or len(positions) != 2:
        raise DataError(
            f"{where}: expected word, part of speech, positions such as 2-0 and two sentences, "
            f"separated by tabs, found {line[:60]!r}"
        )
    first, second = (
        WordInContext(tuple(text.split()), position)
        for text, position in zip(fields[3:], positions, strict=True)
    )
    for context in (first, second):
        if context.position >= len(context.tokens):
            raise DataError(
                f"{where}: position {context.position} is outside a sentence of "
                f"{len(context.tokens)} words"
            )
    return first, second


def score_wic(elmo: Embedder, data: WiC, seed: int, progress: Progress) -> list[Score]:
    """Score each layer with its own threshold."""
    vectors = _embed_words(elmo, [*data.train, *data.dev, *data.test], progress)
    train, dev, test = (_cosines(vectors, split) for split in data[:3])
    train_labels, dev_labels, test_labels = (
        np.array([pair.same for pair in split]) for split in data[:3]
    )
    thresholds = [choose_threshold(cosines, train_labels) for cosines in train]
    dev_accuracies = [
        float(((cosines >= threshold) == dev_labels).mean())
        for cosines, threshold in zip(dev, thresholds, strict=True)
    ]
    best = int(np.argmax(dev_accuracies))
    return [
        Score.from_estimate(
            estimate_ratio((test[row] >= thresholds[row]) == test_labels, seed=seed),
            split=data.split,
            metric="accuracy",
            method=name,
            chosen=row == best,
        )
        for row, name in enumerate(layer_names(elmo))
    ]


def _embed_words(
    elmo: Embedder, pairs: Sequence[ContextPair], progress: Progress
) -> dict[WordInContext, Float[np.ndarray, "L D"]]:
    """Return the unit vectors of the word in each distinct context."""
    positions: dict[Tokens, set[int]] = {}
    for context in (context for pair in pairs for context in pair[:2]):
        positions.setdefault(context.tokens, set()).add(context.position)
    return {
        WordInContext(tokens, position): normalize(vectors[:, position])
        for tokens, vectors in embed_layers(elmo, positions, progress)
        for position in positions[tokens]
    }


def _cosines(
    vectors: dict[WordInContext, Float[np.ndarray, "L D"]], pairs: Sequence[ContextPair]
) -> Float[np.ndarray, "L N"]:
    return np.stack(
        [(vectors[pair.first] * vectors[pair.second]).sum(axis=-1) for pair in pairs], axis=1
    )
