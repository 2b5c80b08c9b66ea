"""The parts of a long preparation, each complete on disk or absent.

A part is what one block of the text became: its words, their counts, and its stream in numbers of
its own.
"""

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt32

from elmore import atomic
from elmore.corpus.blocks import Block
from elmore.corpus.counting import count
from elmore.corpus.options import Options
from elmore.errors import DataError
from elmore.journal import Journal

FORMAT = 1
_MAY_DIFFER = {"errors"}  # what was read without an error is read alike either way
_OURS = re.compile(r"lock|job\.json(\.new)?|part-\d+\..*|corpus")
_DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


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

    def __init__(self, folder: Path, job: Job, *, anew: bool = False) -> None:
        for path in folder.iterdir() if folder.is_dir() else ():  # in the end all of it is deleted
            if not (_OURS.fullmatch(path.name) or atomic.is_temporary(path.name)):
                raise DataError(f"{folder} holds {path.name!r}, which is not ours; move it away")
        super().__init__(folder, job, anew=anew, may_differ=_MAY_DIFFER)

    def note(self, number: int) -> dict[str, Any] | None:
        """Give what a part says of itself; None where it is missing or not sound."""
        try:
            with np.load(_path(self.folder, number)) as archive:
                for name in archive.files:
                    _ = archive[name]  # read to its end: then its checksum has been compared
                return json.loads(archive["note"].tobytes())
        except _DAMAGED:
            return None

    def words(self, number: int) -> tuple[list[str], Int64[np.ndarray, " words+1"]]:
        """Give the words of a part and how often each number occurs in its training text."""
        with self._opened(number) as archive:
            text = archive["words"].tobytes().decode("utf-8")
            return text.split("\n") if text else [], archive["counts"]

    def stream(self, number: int, split: str) -> UInt32[np.ndarray, " N"]:
        """Give the stream of a part, in numbers of its own."""
        with self._opened(number) as archive:
            return archive[split]

    @contextmanager
    def _opened(self, number: int) -> Iterator[Any]:
        try:
            with np.load(_path(self.folder, number)) as archive:
                yield archive
        except _DAMAGED as error:
            path = _path(self.folder, number)
            raise DataError(f"{path}: damaged ({error}); --resume does it again") from error

    @property
    def is_empty(self) -> bool:
        """Whether no part is finished."""
        return not any(self.folder.glob("part-*.npz"))


def _path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06}.npz"


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
