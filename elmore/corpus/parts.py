"""The parts of a long preparation, each complete on disk or absent.

A part is what one block of the text became: its words, their counts, and its stream in numbers of
its own.
"""

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8, UInt32

from elmore import atomic, npy, strict_json
from elmore.corpus.blocks import Block
from elmore.corpus.counting import count
from elmore.corpus.options import Options
from elmore.errors import DataError
from elmore.journal import Journal

FORMAT = 1
_MAY_DIFFER = {"errors"}  # what was read without an error is read alike either way
_KINDS = {"note": "u1", "words": "u1", "counts": "i8", "train": "u4", "valid": "u4"}
"""The arrays of a part, and what they hold."""


@dataclass(frozen=True, kw_only=True)
class Job(Options):
    """What decides the result: two runs of the same job give the same bytes."""

    inputs: list[list[str | int | None]]
    valid_inputs: list[list[str | int | None]]
    vocabulary: str | None
    """The checksum of a given list of words."""
    elmore: str
    """The version, since what a word is may change."""
    format: int = FORMAT


class Parts(Journal[Job]):
    """The folder of one job. One process at a time works in it."""

    # elmore 0.1 wrote a part as part-000000.PID first
    FILES = re.compile(r"part-\d+\.(npz|\d+(\.new)?)")
    FOLDERS = frozenset({"corpus"})

    def __init__(self, folder: Path, job: Job, *, anew: bool = False) -> None:
        super().__init__(folder, job, anew=anew, may_differ=_MAY_DIFFER)

    def note(self, number: int) -> dict[str, Any] | None:
        """Give what a part says of itself; None where it is missing or not sound."""
        try:
            return _checked(npy.read_archive(_path(self.folder, number), tuple(_KINDS)))
        except ValueError:  # of what was never written, too
            return None

    def words(self, number: int) -> tuple[list[str], Int64[np.ndarray, " words+1"]]:
        """Give the words of a part and how often each number occurs in its training text."""
        arrays = self._arrays(number, "words", "counts")
        return _split(arrays["words"]), arrays["counts"]

    def stream(self, number: int, split: str) -> UInt32[np.ndarray, " N"]:
        """Give the stream of a part, in numbers of its own."""
        return self._arrays(number, split)[split]

    def _arrays(self, number: int, *names: str) -> dict[str, np.ndarray]:
        try:
            return npy.read_archive(_path(self.folder, number), names)
        except DataError as error:
            raise DataError(f"{error}; --resume does it again") from error

    @property
    def is_empty(self) -> bool:
        """Whether no part is finished."""
        return not any(self.folder.glob("part-*.npz"))


def _path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06}.npz"


def _split(words: UInt8[np.ndarray, " bytes"]) -> list[str]:
    text = words.tobytes().decode("utf-8")
    return text.split("\n") if text else []


def _checked(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Give the note of a part whose arrays fit it and one another.

    Raises:
        ValueError: if they do not.
    """
    for name, kind in _KINDS.items():
        if arrays[name].ndim != 1 or arrays[name].dtype != np.dtype(f"<{kind}"):
            raise ValueError(f"{name} is another kind of array")
    note = strict_json.loads(arrays["note"].tobytes())
    lengths = {split: len(arrays[split]) for split in ("train", "valid")}
    whole = isinstance(note, dict) and {key: note.get(key) for key in lengths} == lengths
    if not whole or type(note.get("lines")) is not int or not isinstance(note.get("digest"), str):
        raise ValueError("its note is of other arrays")
    num_types, counts = len(_split(arrays["words"])) + 1, arrays["counts"]
    if len(counts) != num_types or counts.min() < 0:
        raise ValueError("it has other words than counts")
    if any(arrays[split].max(initial=0) >= num_types for split in lengths):
        raise ValueError("its stream holds a number that is no word")
    return note


def make(folder: Path, options: Options, block: Block) -> tuple[int, dict[str, Any]]:
    """Count a block into a finished part; give its number and its note."""
    counted = count(block, options)
    note = {
        "digest": block.digest(),
        "lines": block.num_lines,
        "train": len(counted.train),
        "valid": len(counted.valid),
    }
    data = io.BytesIO()
    np.savez(
        data,
        note=np.frombuffer(json.dumps(note).encode(), np.uint8),
        words=np.frombuffer("\n".join(counted.words).encode(), np.uint8),
        counts=counted.counts,
        train=counted.train,
        valid=counted.valid,
    )
    atomic.write(_path(folder, block.number), data.getvalue())
    return block.number, note
