"""BLiMP: which of two sentences is grammatical (Warstadt et al., 2020).

The model is right if the acceptable sentence of a minimal pair has the higher log-probability: the
sum over its words given all words before (forward), given all words after (backward), or both sums
together. Words that both sentences start with, or end with, have the same terms and cancel.

Shapes: M positions, D width of one direction.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Shaped

from elmore import strict_json
from elmore.embed.embedder import Embedder
from elmore.errors import DataError
from elmore.probe.estimates import estimate_ratio
from elmore.probe.suite.files import find_files
from elmore.probe.suite.scores import Progress, Score
from elmore.probe.suite.word_probabilities import WordProbabilities
from elmore.text.files import numbered_lines
from elmore.text.tokenizers import penn

METHODS = ("forward", "backward", "both")
_FIELDS = ("sentence_good", "sentence_bad", "field", "linguistics_term")
_CHUNK = 512  # positions scored together: the memory of larger logits is not reused by malloc


class MinimalPair(NamedTuple):
    """The words of an acceptable and of an unacceptable sentence."""

    good: list[str]
    bad: list[str]
    field: str
    """Such as syntax."""
    phenomenon: str
    """`linguistics_term`, such as island_effects."""


def read_blimp(folder: Path) -> list[MinimalPair]:
    """Read the pairs of all `*.jsonl` files of a folder."""
    pairs = [
        _parse_pair(where, line)
        for path in find_files(folder, "*.jsonl")
        for where, line in numbered_lines(path)
    ]
    if not pairs:
        raise DataError(f"{folder}: expected the .jsonl files of BLiMP in it, found no pair")
    return pairs


def _parse_pair(where: str, line: str) -> MinimalPair:
    data = strict_json.parse(line, where)
    texts = [data.get(key) for key in _FIELDS] if isinstance(data, dict) else []
    values = [value for value in texts if isinstance(value, str)]
    if len(values) != len(_FIELDS):
        raise DataError(f"{where}: expected an object with the texts {', '.join(_FIELDS)}")
    good, bad = (penn(value).words for value in values[:2])
    if not good or not bad:
        raise DataError(f"{where}: a sentence has no words")
    field, phenomenon = (value.replace("/", "_") for value in values[2:])  # syntax/semantics too
    return MinimalPair(good, bad, field, phenomenon)


def score_blimp(
    elmo: Embedder, pairs: list[MinimalPair], seed: int, progress: Progress
) -> list[Score]:
    """Score all pairs, each field and each phenomenon.

    Raises:
        DataError: The model has no softmax.
    """
    margins = np.concatenate(list(_margins(elmo, pairs, progress)))  # (pairs, 2)
    correct = np.concatenate([margins, margins.sum(axis=1, keepdims=True)], axis=1) > 0
    parts: dict[str, Bool[np.ndarray, " N"]] = {"all": np.ones(len(pairs), bool)}
    for name in ("field", "phenomenon"):
        values = np.array([getattr(pair, name) for pair in pairs])
        parts |= {f"{name} {value}": values == value for value in np.unique(values)}
    return [
        Score.from_estimate(
            estimate_ratio(correct[rows, column], seed=seed),
            part=part,
            metric="accuracy",
            method=method,
            chosen=method == "both",
        )
        for part, rows in parts.items()
        for column, method in enumerate(METHODS)
    ]


def _margins(
    elmo: Embedder, pairs: list[MinimalPair], progress: Progress
) -> Iterator[Float[np.ndarray, "N 2"]]:
    """Yield log P(good) - log P(bad) of some pairs at a time, forward and backward."""
    model = WordProbabilities(elmo)
    states = model.stream_states(sentence for pair in pairs for sentence in (pair.good, pair.bad))
    sides = tuple(_PendingWords(model.log_probs) for _ in range(2))
    for number, pair in enumerate(pairs, start=1):
        prefix = _shared(pair.good, pair.bad)
        suffix = _shared(pair.good[::-1], pair.bad[::-1])
        for words, sign in ((pair.good, 1), (pair.bad, -1)):
            forward, backward = next(states)
            end = len(words) - suffix
            sides[0].add(forward[prefix:], words[prefix:], sign)
            sides[1].add(backward[:end], words[:end], sign)
        if number == len(pairs) or max(map(len, sides)) >= _CHUNK:
            yield np.stack([side.sum_pairs() for side in sides], axis=1)
            progress(number / len(pairs), number)


def _shared(a: list[str], b: list[str]) -> int:
    """Return the number of words that both start with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


class _PendingWords:
    """Words of some pairs, in one direction, whose log-probabilities are computed together."""

    def __init__(
        self, log_probs: Callable[[Float[np.ndarray, "M D"], list[str]], Float[np.ndarray, " M"]]
    ) -> None:
        self._log_probs = log_probs
        self._clear()

    def _clear(self) -> None:
        self._states: list[Float[np.ndarray, "_ D"]] = []
        self._words: list[str] = []
        self._signs: list[tuple[int, int]] = []  # of each sentence: +1 or -1, number of words

    def __len__(self) -> int:
        return len(self._words)

    def add(self, states: Float[np.ndarray, "_ D"], words: Iterable[str], sign: int) -> None:
        """Add some words of a sentence."""
        self._states.append(states)
        self._words.extend(words)
        self._signs.append((sign, len(states)))

    def sum_pairs(self) -> Float[np.ndarray, " N"]:
        """Return the sum of the first sentence of each pair minus that of the second, and clear."""
        signs: Shaped[np.ndarray, "S 2"] = np.array(self._signs)
        terms = self._log_probs(np.concatenate(self._states), self._words) if self._words else 0
        weights = np.repeat(signs[:, 0], signs[:, 1]) * terms
        pair = np.repeat(np.arange(len(signs)) // 2, signs[:, 1])
        self._clear()
        return np.bincount(pair, weights, minlength=len(signs) // 2)
