"""A learned pooling: how the vectors of the tokens of a text become one vector.

    weight(t) = a / (a + p(word_t)) * exp(attention . vectors[t])
    average   = sum_t weight(t) vectors[t] / sum_t weight(t)
    centred   = average - mean
    cleaned   = centred - components.T @ components @ centred
    pooled    = projection @ cleaned

Each part may be absent. `Embedder.learn_pooling` learns frequencies, mean and components (SIF:
Arora et al., 2017; Mu and Viswanath, 2018); `benchmarks/distill_pooling.py` learns attention and
projection from a sentence encoder. A model folder stores named poolings in `poolings.npz`.

Shapes: T tokens, D width, k components, K pooled width.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int8, Shaped

from elmore import config, npy
from elmore.errors import ConfigError, DataError, ElmoreError
from elmore.weights.npz_facts import read_facts, write_with_facts

FORMAT = 3  # 2 added attention, projection, all_layers, origin, several poolings; 3 truncatable
RESERVED = ("mean", "max", "learned")
"""Names that mean something else where a pooling is named."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TextPooling:
    """A pooling learned from texts; see `Embedder.learn_pooling`."""

    frequencies: dict[str, float] = field(default_factory=dict)
    """Relative frequency of each word; if empty, all words have the same weight."""
    mean: Float[np.ndarray, " D"]
    components: Float[np.ndarray, "k D"]
    """Orthonormal directions to remove; there may be none."""
    smoothing: float = 1e-3
    """a: a word of this frequency has weight 1/2, a word that is not in the sample 1."""
    attention: Float[np.ndarray, " D"] | None = None
    """The logarithm of a token's weight is its product with the token's vector."""
    projection: Int8[np.ndarray, "K D"] | None = None
    """Rows of whole numbers; each is multiplied by its scale."""
    scales: Float[np.ndarray, " K"] | None = None
    all_layers: bool = False
    """Whether a token's vector is all its layers side by side, instead of one layer or a mix."""
    truncatable: bool = False
    """Whether the first numbers of a vector are a shorter one: the strongest come first."""
    origin: dict[str, str] = field(default_factory=dict)
    """What it was learned from, and under which licence, for the model card."""

    def __post_init__(self) -> None:
        if not 0 < self.smoothing < math.inf:
            raise DataError(f"smoothing must be above 0 and finite, found {self.smoothing!r}")
        if not all(0 <= frequency <= 1 for frequency in self.frequencies.values()):
            raise DataError("the frequencies of words must be between 0 and 1")
        if self.mean.ndim != 1 or self.components.shape[1:] != self.mean.shape:
            shapes = f"{self.mean.shape} and {self.components.shape}"
            raise DataError(f"expected a mean (D,) and components (k, D), found {shapes}")
        if self.attention is not None and self.attention.shape != self.mean.shape:
            shapes = f"{self.attention.shape} and {self.mean.shape}"
            raise DataError(f"attention and mean must have the same shape, found {shapes}")
        if (self.projection is None) != (self.scales is None):
            raise DataError("a projection needs scales, and scales a projection")
        if self.projection is not None and self.scales is not None:
            shapes = f"{self.projection.dtype} {self.projection.shape} and {self.scales.shape}"
            fits = self.scales.ndim == 1 and self.projection.shape == (self.width, len(self.mean))
            if self.projection.dtype != np.int8 or not fits:
                raise DataError(f"expected int8 projection (K, D) and scales (K,), found {shapes}")
        if not all(np.isfinite(each).all() for each in self._floats().values()):
            raise DataError(f"{', '.join(self._floats())} must be finite")

    def __repr__(self) -> str:
        parts = [f"{len(self.frequencies):,} words" if self.frequencies else "equal weights"]
        parts += [] if self.attention is None else ["attention"]
        parts += [f"{len(self.components)} components removed"] if len(self.components) else []
        parts += [] if self.projection is None else [f"projected from {len(self.mean)}"]
        return f"<TextPooling of width {self.width}: {', '.join(parts)}>"

    @property
    def width(self) -> int:
        """K: width of a pooled vector."""
        return len(self.mean) if self.scales is None else len(self.scales)

    def weigh(
        self, tokens: Sequence[str], vectors: Float[np.ndarray, "T D"]
    ) -> Float[np.ndarray, " T"]:
        """Return the weight of each token, above 0.

        Args:
            tokens: The words of a text.
            vectors: Their vectors.

        Returns:
            Weights (tokens,); only their ratios matter.
        """
        frequency = np.array([self.frequencies.get(word, 0.0) for word in tokens])
        weights = self.smoothing / (self.smoothing + frequency)
        if self.attention is None:
            return weights
        scores = vectors.astype(np.float64) @ self.attention
        return weights * np.exp(scores - scores.max(initial=-math.inf))

    def correct(self, average: Float[np.ndarray, " D"]) -> Float[np.ndarray, " K"]:
        """Remove the mean and the components from a vector, and project it.

        Args:
            average: The weighted average of the vectors of a text.

        Returns:
            The pooled vector.
        """
        centred = average - self.mean
        cleaned = centred - (self.components @ centred) @ self.components
        return cleaned if self.dense is None else self.dense @ cleaned.astype(np.float32)

    @cached_property
    def dense(self) -> Float[np.ndarray, "K D"] | None:
        """The projection in float32, None if there is none."""
        if self.projection is None or self.scales is None:
            return None
        return self.projection * self.scales[:, None].astype(np.float32)

    def _floats(self) -> dict[str, Float[np.ndarray, "..."]]:
        names = ("mean", "components", "attention", "scales")
        return {name: each for name in names if (each := getattr(self, name)) is not None}

    @property
    def digest(self) -> str:
        """A hash of everything that determines the pooled vectors."""
        facts = self.frequencies, self.smoothing, self.all_layers, sorted(self.arrays())
        digest = hashlib.sha256(repr(facts).encode("utf-8", "backslashreplace"))
        for _, array in sorted(self.arrays().items()):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def arrays(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Return the arrays by name, without those that are absent."""
        projection = {} if self.projection is None else {"projection": self.projection}
        return self._floats() | projection

    def save(self, path: str | Path) -> None:
        """Write one .npz file; it is complete or absent, and contains no pickle.

        Args:
            path: The file to write; missing folders are made.

        Raises:
            DataError: The file cannot be written.
        """
        write_poolings(Path(path), {"": self})

    @staticmethod
    def load(path: str | Path) -> "TextPooling":
        """Load a pooling that `save` wrote.

        Args:
            path: The file.

        Returns:
            The pooling.

        Raises:
            DataError: The file is missing or damaged, or something else wrote it.
        """
        poolings = read_poolings(Path(path))
        if len(poolings) != 1:
            raise DataError(
                f"{path}: not a readable pooling (it has {len(poolings)}: {', '.join(poolings)})"
            )
        return next(iter(poolings.values()))


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """The metadata of one pooling of a file."""

    smoothing: float
    frequencies: dict[str, float]
    arrays: tuple[str, ...] = ("mean", "components")
    all_layers: bool = False
    truncatable: bool = False
    origin: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {"mean", "components", "attention", "projection", "scales"}
        names = set(self.arrays)
        if not {"mean", "components"} <= names <= known or len(names) < len(self.arrays):
            raise ConfigError(
                f"arrays must be mean, components and others of {sorted(known)}, each once"
            )


@dataclass(frozen=True, kw_only=True)
class _FirstFormat:
    """The metadata of a file of format 1, which is one pooling."""

    format: int
    smoothing: float
    frequencies: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class _Metadata:
    """The metadata of a file."""

    format: int
    poolings: dict[str, _Entry]


def write_poolings(path: Path, poolings: Mapping[str, TextPooling]) -> None:
    """Write named poolings into one .npz file; it is complete or absent.

    Raises:
        DataError: The file cannot be written.
    """
    entries = {
        name: _Entry(
            smoothing=pooling.smoothing,
            frequencies=pooling.frequencies,
            arrays=tuple(pooling.arrays()),
            all_layers=pooling.all_layers,
            truncatable=pooling.truncatable,
            origin=pooling.origin,
        )
        for name, pooling in poolings.items()
    }
    arrays = {
        f"{number}.{name}": array
        for number, pooling in enumerate(poolings.values())
        for name, array in pooling.arrays().items()
    }
    facts = _Metadata(format=FORMAT, poolings=entries)
    write_with_facts(path, facts, arrays, member="words")


def read_poolings(path: Path) -> dict[str, TextPooling]:
    """Read the named poolings of a file.

    Raises:
        DataError: The file is missing or damaged, or something else wrote it.
    """
    try:
        metadata = read_facts(path, FORMAT, member="words")
        if isinstance(metadata, dict) and metadata["format"] == 1:  # one pooling, without a name
            first = config.build(_FirstFormat, metadata, "words")
            entry = _Entry(smoothing=first.smoothing, frequencies=first.frequencies)
            return {"": _build(entry, npy.read_npz(path, entry.arrays))}
        poolings = {}
        entries = config.build(_Metadata, metadata, "words").poolings
        for number, (name, entry) in enumerate(entries.items()):
            stored = npy.read_npz(path, [f"{number}.{array}" for array in entry.arrays])
            arrays = dict(zip(entry.arrays, stored.values(), strict=True))
            poolings[name] = _build(entry, arrays)
        return poolings
    except ElmoreError as error:
        raise DataError(f"{path}: not a readable pooling ({error})") from error


def _build(entry: _Entry, arrays: dict[str, Shaped[np.ndarray, "..."]]) -> TextPooling:
    floats = [array for name, array in arrays.items() if name != "projection"]
    if any(array.dtype.kind != "f" for array in floats):
        raise DataError("mean, components, attention and scales must be floating-point numbers")
    return TextPooling(
        frequencies=entry.frequencies,
        smoothing=entry.smoothing,
        all_layers=entry.all_layers,
        truncatable=entry.truncatable,
        origin=entry.origin,
        **arrays,
    )
