"""A learned whitening: several layers of a token, side by side, become one vector.

    joined   = [layers[a] ; layers[b] ; ...]
    whitened = projection @ (joined - mean)

The vectors of a biLM share a few large components, and its layers differ in scale. A whitening
subtracts the mean of a sample and divides each principal component by a power of its variance: a
cosine then counts the small ones too. The projection has as many rows as a layer has numbers.
`embed/whitening.py` learns it; a model folder stores it in `whitening.npz`.

Shapes: W width of the joined layers, K width of a whitened vector.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from elmore import config, npy
from elmore.errors import DataError, ElmoreError
from elmore.model.native import Int8Matrix
from elmore.weights.bit_packing import pack_bits, unpack_bits
from elmore.weights.npz_facts import read_facts, write_with_facts

FORMAT = 2  # 1 had numbers of 8 bits only
MAX_INT4 = 7
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
        rows = np.ascontiguousarray(self.projection.dense())  # the order decides the last bits
        return -(rows @ self.mean)

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
        numbers, scales = self.projection
        small = np.abs(numbers.astype(np.int16)).max() <= MAX_INT4
        bits = 4 if small and numbers.shape[1] % 2 == 0 else 8
        facts = _Facts(format=FORMAT, layers=self.layers, bits=bits, origin=self.origin)
        stored = pack_bits(numbers.astype(np.uint8) & 15, 4) if bits == 4 else numbers
        arrays = dict(zip(_ARRAYS, (self.mean, stored, scales), strict=True))
        write_with_facts(Path(path), facts, arrays)

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
            facts = config.build(_Facts, read_facts(Path(path), FORMAT), "facts")
            mean, numbers, scales = npy.read_npz(Path(path), _ARRAYS).values()
            if facts.bits == 4:
                numbers = _unpack_int4(numbers)
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


def _unpack_int4(packed: Int[np.ndarray, "K half"]) -> Int[np.ndarray, "K W"]:
    if packed.dtype != np.uint8 or packed.ndim != 2:
        raise DataError(f"numbers: expected bytes (K, W / 2), found {packed.dtype} {packed.shape}")
    return (unpack_bits(packed, 4) ^ 8).view(np.int8) - np.int8(8)


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What a file says besides its arrays."""

    format: int
    layers: tuple[str, ...]
    bits: Literal[4, 8] = 8
    """Of the numbers of the projection; two of 4 bits are one byte, the first in its low half."""
    origin: dict[str, str] = field(default_factory=dict)
