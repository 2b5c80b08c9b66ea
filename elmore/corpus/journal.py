"""The journal of `elmore prepare`: finished parts, each complete on disk or absent.

A part is one block of the text after counting: its words, their counts, and its stream of word
numbers, which are local to the part.
"""

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8, UInt32

from elmore import atomic, npy, strict_json
from elmore.corpus.blocks import Block
from elmore.corpus.counting import count_block
from elmore.corpus.options import PrepareOptions
from elmore.errors import DataError
from elmore.journal import Journal

FORMAT = 2  # 1: other names of options
_DTYPES = {"note": "u1", "words": "u1", "counts": "i8", "train": "u4", "valid": "u4"}
"""The arrays of a part; `note` is its manifest, as JSON."""


@dataclass(frozen=True, kw_only=True)
class PrepareJob(PrepareOptions):
    """Everything that decides the result: equal jobs produce equal bytes."""

    inputs: list[list[str | int | None]]
    valid_inputs: list[list[str | int | None]]
    vocabulary: str | None
    """Checksum of a given vocabulary."""
    elmore: str
    """The version, since tokenization may change."""
    format: int = FORMAT


class PrepareJournal(Journal[PrepareJob]):
    """The folder of one job, used by one process at a time."""

    FILES = re.compile(r"part-\d+\.npz")
    FOLDERS = frozenset({"corpus"})
    MAY_DIFFER = frozenset({"errors", "format"})  # text read without errors is the same either way
    RENAMED_KEYS = MappingProxyType(  # of format 1
        {"wrapped": "hard_wrapped", "valid_share": "valid_fraction"}
    )

    def manifest(self, number: int) -> dict[str, Any] | None:
        """Return the checksum and sizes of a part; None if it is missing or damaged."""
        try:
            return _check_part(npy.read_npz(_part_path(self.folder, number), tuple(_DTYPES)))
        except ValueError:  # also if there is no such file
            return None

    def words(self, number: int) -> tuple[list[str], Int64[np.ndarray, " words+1"]]:
        """Return the words of a part, and the counts of its numbers in the training text."""
        arrays = self._read_arrays(number, "words", "counts")
        return _split_words(arrays["words"]), arrays["counts"]

    def stream(self, number: int, split: str) -> UInt32[np.ndarray, " N"]:
        """Return the stream of a part, in its local numbers."""
        return self._read_arrays(number, split)[split]

    def _read_arrays(self, number: int, *names: str) -> dict[str, np.ndarray]:
        try:
            return npy.read_npz(_part_path(self.folder, number), names)
        except DataError as error:
            raise DataError(f"{error}; --resume makes it again") from error

    @property
    def is_empty(self) -> bool:
        """Whether no part is finished."""
        return not any(self.folder.glob("part-*.npz"))


def _part_path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06}.npz"


def _split_words(words: UInt8[np.ndarray, " bytes"]) -> list[str]:
    text = words.tobytes().decode("utf-8")
    return text.split("\n") if text else []


def _check_part(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the manifest of a part whose arrays are consistent.

    Raises:
        ValueError: They are not.
    """
    for name, dtype in _DTYPES.items():
        if arrays[name].ndim != 1 or arrays[name].dtype != np.dtype(f"<{dtype}"):
            raise ValueError(f"{name} has another dtype or shape")
    manifest = strict_json.loads(arrays["note"].tobytes())
    lengths = {split: len(arrays[split]) for split in ("train", "valid")}
    if (
        not isinstance(manifest, dict)
        or {key: manifest.get(key) for key in lengths} != lengths
        or type(manifest.get("lines")) is not int
        or not isinstance(manifest.get("digest"), str)
    ):
        raise ValueError("the manifest does not fit the arrays")
    num_types, counts = len(_split_words(arrays["words"])) + 1, arrays["counts"]
    if len(counts) != num_types or counts.min() < 0:
        raise ValueError("the counts do not fit the words")
    if any(arrays[split].max(initial=0) >= num_types for split in lengths):
        raise ValueError("the stream has a number that is not a word")
    return manifest


def write_part(folder: Path, options: PrepareOptions, block: Block) -> tuple[int, dict[str, Any]]:
    """Count a block and write its part; return its number and manifest."""
    counted = count_block(block, options)
    manifest = {
        "digest": block.digest(),
        "lines": block.num_lines,
        "train": len(counted.train),
        "valid": len(counted.valid),
    }
    data = io.BytesIO()
    np.savez(
        data,
        note=np.frombuffer(json.dumps(manifest).encode(), np.uint8),
        words=np.frombuffer("\n".join(counted.words).encode(), np.uint8),
        counts=counted.counts,
        train=counted.train,
        valid=counted.valid,
    )
    atomic.write(_part_path(folder, block.number), data.getvalue())
    return block.number, manifest
