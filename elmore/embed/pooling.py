"""Pool token vectors into one vector per text: mean, maximum, or a corrected mean.

Contextual vectors share a few strong directions, so the plain means of any two texts are similar.
`TextPooling` gives rare words more weight (SIF: Arora et al., 2017), then removes what all texts
have in common: their mean, and the directions of largest variance (Mu and Viswanath, 2018).

    weight(word) = a / (a + p(word))
    average      = sum_t weight(word_t) vectors[t] / sum_t weight(word_t)
    centred      = average - mean
    pooled       = centred - components.T @ components @ centred

All of it is learned from a sample beforehand: a text's vector does not depend on other texts.

Shapes: T tokens, D width, k components, n and m texts.
"""

import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, Self

import numpy as np
from jaxtyping import Float

from elmore import atomic, config, npy, strict_json
from elmore.errors import ConfigError, DataError, ElmoreError

BLOCK = 256  # texts per update of the covariance
FORMAT = 1
NEGLIGIBLE = 1e-10  # fraction of the variance that is rounding error


@dataclass(frozen=True, kw_only=True, eq=False)
class TextPooling:
    """A pooling learned from a sample of texts; see `Embedder.learn_pooling`."""

    frequencies: dict[str, float]
    """Relative frequency of each word; if empty, all words have the same weight."""
    mean: Float[np.ndarray, " D"]
    components: Float[np.ndarray, "k D"]
    """Orthonormal directions to remove; there may be none."""
    smoothing: float = 1e-3
    """a: a word of this frequency has weight 1/2, a word that is not in the sample 1."""

    def __post_init__(self) -> None:
        if not 0 < self.smoothing < math.inf:
            raise DataError(f"smoothing must be above 0 and finite, found {self.smoothing!r}")
        if not all(0 <= frequency <= 1 for frequency in self.frequencies.values()):
            raise DataError("the frequencies of words must be between 0 and 1")
        if self.mean.ndim != 1 or self.components.shape[1:] != self.mean.shape:
            shapes = f"{self.mean.shape} and {self.components.shape}"
            raise DataError(f"expected a mean (D,) and components (k, D), found {shapes}")
        if not (np.isfinite(self.mean).all() and np.isfinite(self.components).all()):
            raise DataError("mean and components must be finite")

    def correct(self, average: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """Remove the mean and the components from a vector.

        Args:
            average: The weighted average of the vectors of a text.

        Returns:
            The pooled vector.
        """
        centred = average - self.mean
        return centred - (self.components @ centred) @ self.components

    def save(self, path: str | Path) -> None:
        """Write one .npz file; it is complete or absent, and contains no pickle.

        Args:
            path: The file to write; missing folders are made.

        Raises:
            DataError: The file cannot be written.
        """
        path = Path(path)
        words = {"format": FORMAT, "smoothing": self.smoothing, "frequencies": self.frequencies}
        text = np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, words=text, mean=self.mean, components=self.components)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(path, buffer.getvalue())
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error})") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a pooling that `save` wrote.

        Args:
            path: The file.

        Returns:
            The pooling.

        Raises:
            DataError: The file is missing or damaged, or something else wrote it.
        """
        try:
            arrays = npy.read_npz(Path(path), ("words", "mean", "components"))
            words = strict_json.parse(arrays.pop("words").tobytes(), "words")
            metadata = config.build(_Words, words, "words")
            config.check_format(words, FORMAT, "words")
            if any(array.dtype.kind != "f" for array in arrays.values()):
                raise DataError("mean and components must be floating-point numbers")
            return cls(frequencies=metadata.frequencies, smoothing=metadata.smoothing, **arrays)
        except ElmoreError as error:
            raise DataError(f"{path}: not a readable pooling ({error})") from error


@dataclass(frozen=True, kw_only=True)
class _Words:
    """The metadata of a saved pooling."""

    format: int
    smoothing: float
    frequencies: dict[str, float]


Pool = Literal["mean", "max"] | TextPooling


def pool(
    tokens: Sequence[str], vectors: Float[np.ndarray, "T D"], how: Pool
) -> Float[np.ndarray, " D"]:
    """Return one float32 vector for a text, zeros for an empty one."""
    if not isinstance(how, TextPooling) and how not in ("mean", "max"):
        raise ConfigError(f"pool={how!r}: expected 'mean', 'max' or a TextPooling")
    _check(tokens, vectors)
    width = vectors.shape[1]
    if isinstance(how, TextPooling) and len(how.mean) != width:
        raise DataError(
            f"this pooling was learned for width {len(how.mean)}, the vectors have width {width}; "
            "learn one with this model"
        )
    if len(tokens) == 0:
        pooled = np.zeros(width)
    elif isinstance(how, TextPooling):
        pooled = how.correct(_average(tokens, vectors, how.frequencies, how.smoothing))
    elif how == "max":
        pooled = vectors.max(axis=0)
    else:
        pooled = _average(tokens, vectors, {}, 1.0)
    return pooled.astype(np.float32)


def learn(
    sample: Iterable[tuple[Sequence[str], Float[np.ndarray, "T D"]]],
    *,
    weighted: bool = True,
    remove: int = 3,
    smoothing: float = 1e-3,
) -> TextPooling:
    """Learn a pooling from a sample of texts, each given as its tokens and their vectors.

    The sample is iterated twice, because words are counted before the first text can be averaged:
    an iterator is made a list first, anything else needs no more memory than a (D, D) matrix. With
    `weighted=False` all words have the same weight. Up to `remove` directions are removed besides
    the mean; fewer if the sample varies in fewer. Empty texts are skipped.
    """
    if remove < 0 or not 0 < smoothing < math.inf:
        raise ConfigError(f"expected remove >= 0 and smoothing > 0, found {remove} and {smoothing}")
    sample = list(sample) if iter(sample) is sample else sample
    counts = Counter(word for words, _ in sample for word in words) if weighted else Counter()
    total = counts.total()
    frequencies = {word: count / total for word, count in counts.items()}

    def averages() -> Iterator[Float[np.ndarray, " D"]]:
        for words, vectors in sample:
            _check(words, vectors)
            if len(words):
                yield _average(words, vectors, frequencies, smoothing)

    rest, num_texts, sums, products = averages(), 0, np.zeros(()), np.zeros(())
    while rows := list(islice(rest, BLOCK)):
        block = np.stack(rows)  # (n, D)
        num_texts += len(block)
        sums = sums + block.sum(axis=0)
        products = products + block.T @ block  # (D, D)
    if num_texts < 2:
        raise DataError(f"a pooling needs at least 2 texts with words, found {num_texts}")
    if not np.isfinite(products).all():
        raise DataError("a pooling needs finite vectors; some of these are inf or nan")
    mean = sums / num_texts
    variances, directions = np.linalg.eigh(products / num_texts - np.outer(mean, mean))  # ascending
    least = NEGLIGIBLE * np.trace(products) / num_texts
    removed = [i for i in range(len(mean))[::-1][:remove] if variances[i] > least]
    return TextPooling(
        frequencies=frequencies, mean=mean, components=directions.T[removed], smoothing=smoothing
    )


def cosine(a: Float[np.ndarray, "n D"], b: Float[np.ndarray, "m D"]) -> Float[np.ndarray, "n m"]:
    """Return the cosine of each row of a with each row of b; 0 for a zero vector."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise DataError(f"expected (texts, width) of one width, found {a.shape} and {b.shape}")
    similarity = _normalize(a) @ _normalize(b).T
    return np.clip(similarity, -1, 1, out=similarity)


def _normalize(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _average(
    tokens: Sequence[str],
    vectors: Float[np.ndarray, "T D"],
    frequencies: dict[str, float],
    smoothing: float,
) -> Float[np.ndarray, " D"]:
    frequency = np.array([frequencies.get(word, 0.0) for word in tokens])
    weights = smoothing / (smoothing + frequency)  # (T,)
    return weights @ vectors.astype(np.float64) / weights.sum()


def _check(tokens: Sequence[str], vectors: Float[np.ndarray, "T D"]) -> None:
    if vectors.ndim != 2 or len(tokens) != len(vectors):
        raise DataError(
            f"{len(tokens)} tokens need vectors of shape ({len(tokens)}, width), found "
            f"{vectors.shape}; layers='all' cannot be pooled"
        )
