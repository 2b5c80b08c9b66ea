"""A learned whitening: several layers of a token, side by side, become one vector.

    joined   = [layers[a] ; layers[b] ; ...]
    whitened = projection @ (joined - mean)

The vectors of a biLM share a few large components, and its layers differ in scale. A whitening
subtracts the mean of a sample, rotates to its principal components, whose numbers have no
correlation, and divides each by a power of its variance: a cosine then counts the small ones too.
The projection keeps the components of largest variance, as many as a layer has numbers.
`embed/whitening.py` learns it; a model folder stores it in `whitening.npz`.

Shapes: W width of the joined layers, K width of a whitened vector.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float

from elmore import config, npy, strict_json
from elmore.errors import DataError, ElmoreError
from elmore.model.native import Int8Matrix

FORMAT = 1
CLOZE = "cloze"
_ARRAYS = ("mean", "numbers", "scales")


@dataclass(frozen=True, kw_only=True, eq=False)
class Whitening:
    """A whitening learned from text; see `elmore.embed.whitening.learn`."""

    layers: tuple[str, ...]
    """The layers that are joined: numbers, or "cloze"."""
    mean: Float[np.ndarray, " W"]
    projection: Int8Matrix
    """(K, W): int8 numbers, and a scale for each row."""
    origin: dict[str, str] = field(default_factory=dict)
    """What it was learned from, for the model card."""

    def __post_init__(self) -> None:
        check_names(self.layers)
        numbers, scales = self.projection
        fits = numbers.ndim == 2 and numbers.shape == (*scales.shape, *self.mean.shape)
        fits = fits and self.mean.size == len(self.layers) * self.width
        if numbers.dtype != np.int8 or not fits or not self.width:
            raise DataError(
                "expected a mean (W,), int8 numbers (K, W) and scales (K,), where W is K times the "
                f"number of layers, {len(self.layers)}; found {self.mean.shape}, {numbers.dtype} "
                f"{numbers.shape} and {scales.shape}"
            )
        floats = (self.mean, scales)
        if not all(each.dtype == np.float32 and np.isfinite(each).all() for each in floats):
            raise DataError("mean and scales must be finite numbers in float32")

    def __repr__(self) -> str:
        return f"<Whitening of layers {', '.join(self.layers)} to width {self.width}>"

    @property
    def width(self) -> int:
        """K: width of a whitened vector, and of each layer that is joined."""
        return len(self.projection.scales)

    @cached_property
    def bias(self) -> Float[np.ndarray, " K"]:
        """What to add to projected vectors: the mean, projected and subtracted."""
        return -(self.projection.dense() @ self.mean)

    @property
    def digest(self) -> str:
        """A hash of everything that determines the whitened vectors."""
        digest = hashlib.sha256(repr(self.layers).encode())
        for array in (self.mean, *self.projection):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write one .npz file; it is complete or absent, and contains no pickle.

        Args:
            path: The file to write; missing folders are made.

        Raises:
            DataError: The file cannot be written.
        """
        facts = _Facts(format=FORMAT, layers=self.layers, origin=self.origin)
        text = np.frombuffer(json.dumps(config.as_dict(facts)).encode(), dtype=np.uint8)
        arrays = dict(zip(_ARRAYS, (self.mean, *self.projection), strict=True))
        npy.write_npz(Path(path), {"facts": text, **arrays})

    @staticmethod
    def load(path: str | Path) -> "Whitening":
        """Load a whitening that `save` wrote.

        Args:
            path: The file.

        Returns:
            The whitening.

        Raises:
            DataError: The file is missing or damaged, or something else wrote it.
        """
        try:
            text = npy.read_npz(Path(path), ("facts",))["facts"].tobytes()
            table = strict_json.parse(text, "facts")
            if isinstance(table, dict):
                config.check_format(table, FORMAT, "facts")
            facts = config.build(_Facts, table, "facts")
            mean, numbers, scales = npy.read_npz(Path(path), _ARRAYS).values()
            return Whitening(
                layers=facts.layers,
                mean=mean,
                projection=Int8Matrix(numbers, scales),
                origin=facts.origin,
            )
        except ElmoreError as error:
            raise DataError(f"{path}: not a readable whitening ({error})") from error


def check_names(layers: Sequence[str]) -> None:
    """Raise DataError unless these are names of layers that can be joined."""
    invalid = [name for name in layers if not re.fullmatch(f"{CLOZE}|[0-9]{{1,3}}", name)]
    if invalid or not layers:
        raise DataError(f"layers: expected numbers or {CLOZE}, found {[*invalid, *layers][:1]!r}")


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What a file says besides its arrays."""

    format: int
    layers: tuple[str, ...]
    origin: dict[str, str] = field(default_factory=dict)
