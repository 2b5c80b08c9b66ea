"""STS-B and SICK-R: how similar two sentences are (Cer et al., 2017; Marelli et al., 2014).

The prediction is the cosine of two pooled vectors: the means of the token vectors of a layer, the
pooling of `Embedder.learn_pooling`, which is learned from the training sentences alone, without
their scores, or a pooling that the model has. The metric is Spearman's correlation with the scores
of people.

Shapes: L layers and their average, R methods, T tokens, D width, K pooled width, N pairs.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.embed import pooling
from elmore.embed.embedder import Embedder
from elmore.errors import DataError
from elmore.probe.cosine import normalize
from elmore.probe.estimates import estimate_spearman, spearman
from elmore.probe.suite.embeddings import Tokens, embed_layers, layer_names
from elmore.probe.suite.files import find_file
from elmore.probe.suite.scores import Progress, Score
from elmore.text.files import numbered_lines
from elmore.text.tokenizers import penn

LEARNED = "learned pooling"
_MAX_SIMILARITY = 5
_STS = (5, 6, 4)
"""Columns of the two sentences and their similarity."""
_SICK = ("sentence_A", "sentence_B", "relatedness_score")
"""Names of these columns."""


class SentencePair(NamedTuple):
    """The words of two sentences, and their similarity from 0 to 5."""

    first: Tokens
    second: Tokens
    similarity: float


class PairSplits(NamedTuple):
    """Pairs to learn a pooling from, to choose the method by, and to score."""

    train: list[SentencePair]
    dev: list[SentencePair]
    test: list[SentencePair]


def read_sts(folder: Path) -> PairSplits:
    """Read `sts-train.csv`, `sts-dev.csv` and `sts-test.csv`: no header, columns by tabs."""
    paths = (find_file(folder, f"sts-{name}.csv") for name in ("train", "dev", "test"))
    return PairSplits(*map(read_sts_file, paths))


def read_sts_file(path: Path) -> list[SentencePair]:
    """Read one split of STS-B."""
    return _parse_pairs(path, numbered_lines(path), _STS)


def read_sick(folder: Path) -> PairSplits:
    """Read `SICK_train.txt`, `SICK_trial.txt` and `SICK_test_annotated.txt`: with a header."""
    names = ("train", "trial", "test_annotated")
    return PairSplits(*(_read_sick_file(find_file(folder, f"SICK_{name}.txt")) for name in names))


def _read_sick_file(path: Path) -> list[SentencePair]:
    lines = numbered_lines(path)
    where, header = next(lines, (str(path), ""))
    columns = header.split("\t")
    if not set(_SICK) <= set(columns):
        raise DataError(f"{where}: expected a header with the columns {', '.join(_SICK)}")
    return _parse_pairs(path, lines, tuple(map(columns.index, _SICK)))


def _parse_pairs(
    path: Path, lines: Iterable[tuple[str, str]], columns: tuple[int, ...]
) -> list[SentencePair]:
    pairs = [_parse_pair(where, line.split("\t"), columns) for where, line in lines]
    if len(pairs) < 2:
        raise DataError(f"{path}: expected two pairs of sentences or more, found {len(pairs)}")
    return pairs


def _parse_pair(where: str, fields: list[str], columns: tuple[int, ...]) -> SentencePair:
    if len(fields) <= max(columns):
        raise DataError(
            f"{where}: expected {max(columns) + 1} columns or more, separated by tabs, found "
            f"{len(fields)}"
        )
    first, second, similarity = (fields[column] for column in columns)
    sentences = tuple(penn(first).words), tuple(penn(second).words)
    if not all(sentences):
        raise DataError(f"{where}: a sentence has no words")
    try:
        value = float(similarity)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MAX_SIMILARITY:
        raise DataError(f"{where}: expected a similarity from 0 to 5, found {similarity[:20]!r}")
    return SentencePair(*sentences, value)


def score_pairs(elmo: Embedder, data: PairSplits, seed: int, progress: Progress) -> list[Score]:
    """Score each layer, the learned pooling, and the poolings of the model."""
    vectors = _pool_sentences(elmo, data, progress)
    dev, test = (_cosines(vectors, split) for split in (data.dev, data.test))
    dev_gold, test_gold = (
        np.array([pair.similarity for pair in split]) for split in (data.dev, data.test)
    )
    best = int(np.argmax([spearman(cosines, dev_gold) for cosines in dev]))
    return [
        Score.from_estimate(
            estimate_spearman(test[row], test_gold, seed=seed),
            metric="spearman",
            method=method,
            chosen=row == best,
        )
        for row, method in enumerate(
            [*layer_names(elmo), LEARNED, *(f"pooling {name}" for name in elmo.poolings)]
        )
    ]


def _pool_sentences(
    elmo: Embedder, data: PairSplits, progress: Progress
) -> dict[Tokens, list[Float[np.ndarray, " K"]]]:
    """Return the vectors of each sentence, one for each method."""
    means: dict[Tokens, Float[np.ndarray, "L D"]] = {}
    averages: dict[Tokens, Float[np.ndarray, "T D"]] = {}
    stored: dict[Tokens, list[Float[np.ndarray, " K"]]] = {}
    sentences = (sentence for split in data for pair in split for sentence in pair[:2])
    for tokens, vectors in embed_layers(elmo, sentences, progress):
        means[tokens] = vectors.mean(axis=1)
        averages[tokens] = vectors[-1].astype(np.float16)  # half the memory, for the pooling only
        stored[tokens] = [
            pooling.pool(tokens, vectors[:-1] if how.all_layers else vectors[-1], how)
            for how in elmo.poolings.values()
        ]
    sample = dict.fromkeys(sentence for pair in data.train for sentence in pair[:2])
    learned = pooling.learn([(tokens, averages[tokens]) for tokens in sample])
    return {
        tokens: [*mean, pooling.pool(tokens, averages[tokens], learned), *stored[tokens]]
        for tokens, mean in means.items()
    }


def _cosines(
    vectors: dict[Tokens, list[Float[np.ndarray, " K"]]], pairs: Sequence[SentencePair]
) -> Float[np.ndarray, "R N"]:
    first, second = (
        [normalize(np.stack(rows)) for rows in zip(*sides, strict=True)]  # of each method (N, K)
        for sides in (
            [vectors[pair.first] for pair in pairs],
            [vectors[pair.second] for pair in pairs],
        )
    )
    return np.stack([(a * b).sum(axis=-1) for a, b in zip(first, second, strict=True)])
