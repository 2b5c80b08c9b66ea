"""Learn a whitening of joined layers from text; `weights/whitening.py` has the equation.

What tells the senses of a word apart is how its uses vary around their mean, so this is what is
evened out. With S the covariance of that variation, within words:

    each layer:  u = scale * diag(v)^-power E^T (x - mean),  where S = E diag(v) E^T
    joined:      projection = the directions in which the joined u vary most, within words

The scale gives each layer the same mean square length. A whitening is learned once, from a sample
beforehand: a word's vector does not depend on other texts.

Shapes: L joined layers, T tokens, D width of a layer, W = L D.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import parse_layers
from elmore.embed.tokenized import Text
from elmore.errors import DataError
from elmore.model.native import Int8Matrix
from elmore.weights.whitening import CLOZE, MAX_INT4, Whitening, check_names

NEGLIGIBLE = 1e-7  # fraction of the largest variance that is rounding error
POWER = 0.375  # best on held-out SemCor, see benchmarks/whitening.py
MAX_USES = 20  # of a word: a frequent one would decide alone how uses vary
MAX_WORDS = 20_000  # whose uses are counted, which bounds the memory
_BLOCK = 1024  # tokens
_RANGES = (1, 0.9, 0.8, 0.7, 0.6, 0.5)  # fractions of the largest number of a row


def learn(
    elmo: Embedder,
    sample: Iterable[Text],
    *,
    layers: Sequence[str] | None = None,
    power: float = POWER,
    split_sentences: bool = False,
    origin: dict[str, str] | None = None,
) -> Whitening:
    """Learn a whitening from a sample of texts, in memory that does not grow with the sample.

    Args:
        elmo: The model.
        sample: Texts like those that will be embedded, as in `embed`.
        layers: The layers to join: numbers, or "cloze"; by default the top layer and "cloze".
        power: How much the directions are evened out: 0.5 gives all of them the same variance
            within words, 0 leaves them as they are.
        split_sentences: As in `embed`.
        origin: What the sample is, for the model card.

    Returns:
        A whitening for `embed(layers=...)`, whose vectors are as wide as a layer.

    Raises:
        ConfigError: The model has no such layers.
        DataError: The sample is too small, or these layers cannot be joined.
    """
    names = tuple(layers) if layers is not None else (str(elmo.num_layers - 1), CLOZE)
    check_names(names)
    choices = [parse_layers(name) for name in names]
    texts = elmo.stream(sample, layers=choices, split_sentences=split_sentences)
    blocks = ((text.tokens, np.concatenate(list(text.vectors), axis=1)) for text in texts)
    return fit(blocks, names, power=power, origin=origin)


def fit(
    blocks: Iterable[tuple[Sequence[str], Float[np.ndarray, "T W"]]],
    layers: Sequence[str],
    *,
    power: float = POWER,
    origin: dict[str, str] | None = None,
) -> Whitening:
    """Learn a whitening from tokens and their joined layers, in blocks.

    Args:
        blocks: Some tokens each, and their joined layers.
        layers: The names of the layers, as in `learn`.
        power: As in `learn`.
        origin: As in `learn`.

    Returns:
        The whitening.

    Raises:
        DataError: There are too few tokens, or these layers cannot be joined.
    """
    statistics = measure(blocks)
    width = len(statistics.mean) // len(layers)
    if statistics.num_repeated < max(1, width):
        raise DataError(
            f"a whitening to {width} numbers needs as many uses of words that were used before, "
            f"found {statistics.num_repeated}; pass more text"
        )
    return Whitening(
        layers=tuple(layers),
        mean=statistics.mean.astype(np.float32),
        projection=quantize(projection(statistics, len(layers), power)),
        origin=dict(origin or {}),
    )


class Statistics(NamedTuple):
    """How the joined layers of a sample vary."""

    mean: Float[np.ndarray, " W"]
    """Over all tokens."""
    total: Float[np.ndarray, "W W"]
    """Covariance of the counted uses: at most `MAX_USES` of a word."""
    within: Float[np.ndarray, "W W"]
    """Their covariance around the mean of each word."""
    num_repeated: int
    """Counted uses of words that were used before."""


def measure(blocks: Iterable[tuple[Sequence[str], Float[np.ndarray, "T W"]]]) -> Statistics:
    """Measure how joined layers vary; upper and lower case are one word.

    Args:
        blocks: As in `fit`.
    """
    num_tokens, total, use_total, products = 0, np.zeros(0), np.zeros(0), np.zeros((0, 0))
    words = _WordSums(0)
    for tokens, rows in _regroup(blocks):
        if not num_tokens:
            words, width = _WordSums(rows.shape[1]), rows.shape[1]
            total, use_total, products = np.zeros(width), np.zeros(width), np.zeros((width, width))
        uses = words.add(tokens, rows)
        num_tokens += len(rows)
        total += rows.sum(axis=0, dtype=np.float64)
        use_total += uses.sum(axis=0)
        products += uses.T @ uses
    num_words = len(words.numbers)
    counts, sums = words.counts[:num_words], words.sums[:num_words]
    num_uses = int(counts.sum())
    mean_use = use_total / max(1, num_uses)
    within = products - (sums / counts[:, None]).T @ sums
    return Statistics(
        mean=total / max(1, num_tokens),
        total=products / max(1, num_uses) - np.outer(mean_use, mean_use),
        within=within / max(1, num_uses - num_words),
        num_repeated=num_uses - num_words,
    )


class _WordSums:
    """The number and the sum of the counted uses of each word: the first ones."""

    def __init__(self, width: int) -> None:
        self.numbers: dict[str, int] = {}
        self.counts = np.zeros(MAX_WORDS, np.int64)
        self.sums = np.zeros((MAX_WORDS, width))  # pages in use alone take memory

    def add(
        self, tokens: Sequence[str], rows: Float[np.ndarray, "T W"]
    ) -> Float[np.ndarray, "n W"]:
        """Add uses, and return those that are counted."""
        counted = []
        for position, token in enumerate(map(str.lower, tokens)):
            if token not in self.numbers and len(self.numbers) < MAX_WORDS:
                self.numbers[token] = len(self.numbers)
            number = self.numbers.get(token)
            if number is not None and self.counts[number] < MAX_USES:
                self.counts[number] += 1
                counted.append((number, position))
        numbers, positions = np.array(counted, np.int64).reshape(-1, 2).T
        uses = rows[positions].astype(np.float64)
        np.add.at(self.sums, numbers, uses)
        return uses


def _regroup(
    blocks: Iterable[tuple[Sequence[str], Float[np.ndarray, "T W"]]],
) -> Iterator[tuple[list[str], Float[np.ndarray, "T W"]]]:
    """Join blocks to larger ones, because many small products take longer."""
    tokens: list[str] = []
    rows: list[Float[np.ndarray, "T W"]] = []
    for words, vectors in blocks:
        tokens += words
        rows.append(vectors)
        if len(tokens) >= _BLOCK:
            yield tokens, np.concatenate(rows)
            tokens, rows = [], []
    if rows:
        yield tokens, np.concatenate(rows)


def projection(statistics: Statistics, num_layers: int, power: float) -> Float[np.ndarray, "D W"]:
    """Return the projection of a whitening.

    Args:
        statistics: Of a sample.
        num_layers: L: number of layers that are joined.
        power: As in `learn`.

    Raises:
        DataError: The uses of a word do not vary in one of the layers.
    """
    width = len(statistics.mean) // num_layers
    each = np.zeros_like(statistics.within)  # block by block, each layer by itself
    for begin in range(0, len(each), width):
        layer = np.s_[begin : begin + width, begin : begin + width]
        total = statistics.total[layer]
        variances, directions = principal_directions(statistics.within[layer])
        if variances[0] <= NEGLIGIBLE * np.trace(total):
            raise DataError(
                f"layer {begin // width + 1} of {num_layers}: all uses of a word have the same "
                "vector there; join other layers"
            )
        least = NEGLIGIBLE * variances[0]
        scales = np.where(variances > least, np.maximum(variances, least) ** -power, 0)
        rotation = directions * scales[:, None]
        each[layer] = rotation / np.sqrt(np.sum(rotation @ total * rotation))
    _, directions = principal_directions(each @ statistics.within @ each.T)
    return directions[:width] @ each


def quantize(weight: Float[np.ndarray, "M W"]) -> Int8Matrix:
    """Round each row to 4 bits, with the scale that has the least squared error.

    The largest numbers of a row may exceed the range: the others then lose less.
    """
    weight = weight.astype(np.float64)  # squares of large floats would overflow
    largest = np.abs(weight).max(axis=1)
    numbers, scales = np.zeros(weight.shape, np.int8), np.ones(len(weight), np.float32)
    least = np.square(weight).sum(axis=1)
    for fraction in _RANGES:
        scale = np.where(largest > 0, largest * fraction / MAX_INT4, 1)
        rounded = np.clip(np.rint(weight / scale[:, None]), -MAX_INT4, MAX_INT4)
        error = np.square(weight - rounded * scale[:, None]).sum(axis=1)
        better = error < least
        numbers[better], scales[better], least[better] = (
            each[better] for each in (rounded, scale, error)
        )
    return Int8Matrix(numbers, scales)


def principal_directions(
    covariance: Float[np.ndarray, "N N"],
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N N"]]:
    """Return the variances, largest first, and their directions as rows."""
    variances, directions = np.linalg.eigh(covariance)
    return variances[::-1], directions.T[::-1]
