"""The journal of a long preparation: finished parts on disk, each complete or absent.

A part is what one block of the text became: its words, their counts, and its stream in numbers of
its own. `job.json` says what the job is, so that it is only ever resumed as the same.
"""

import io
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt32

from elmore import atomic
from elmore.corpus.blocks import Block
from elmore.corpus.counting import count
from elmore.corpus.options import Options
from elmore.errors import DataError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

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


class Parts:
    """The folder of one job. One process at a time works in it."""

    def __init__(self, folder: Path, job: Job, *, anew: bool = False) -> None:
        self.folder = folder
        self.job = job
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():  # in the end all of it is deleted
            if not _OURS.fullmatch(path.name):
                raise DataError(f"{folder} holds {path.name!r}, which is not ours; move it away")
        self._lock = (folder / "lock").open("w")
        if fcntl:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self._lock.close()
                raise DataError(f"{folder}: another process is at work there") from error
        try:
            if anew or not (folder / "job.json").exists():
                self._empty()
            self._refuse_another_job()
        except BaseException:
            self.close()
            raise

    def _empty(self) -> None:
        """Delete the parts of another job; what says which job it was goes last."""
        for path in self.folder.glob("part-*"):
            path.unlink(missing_ok=True)
        (self.folder / "job.json").unlink(missing_ok=True)

    def _refuse_another_job(self) -> None:
        path = self.folder / "job.json"
        if not path.exists():
            atomic.write(path, json.dumps(asdict(self.job), indent=2).encode())
            return
        try:
            found = dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: damaged; start over with --overwrite") from error
        names = [field.name for field in fields(Job) if field.name not in _MAY_DIFFER]
        differ = [name for name in names if found.get(name) != getattr(self.job, name)]
        if differ:
            said = ", ".join(
                f"{name} was {found.get(name)!r} and is {getattr(self.job, name)!r}"
                for name in differ
            )
            raise DataError(
                f"{self.folder}: begun as another job: {said}; resume it as it was, or start over "
                "with --overwrite"
            )

    def close(self) -> None:
        """Let others in."""
        self._lock.close()

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

    def remove(self) -> None:
        """Delete the journal, when the result has its name."""
        self.close()
        trash = trash_of(self.folder)
        shutil.rmtree(trash, ignore_errors=True)
        self.folder.rename(trash)
        shutil.rmtree(trash)

    @property
    def is_empty(self) -> bool:
        """Whether no part is finished."""
        return not any(self.folder.glob("part-*.npz"))


def trash_of(folder: Path) -> Path:
    """Say what a journal is called while it is deleted."""
    return folder.with_name(f"{folder.name}.done")


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
    path = _path(folder, block.number)
    # Named by process: a worker of a run that was killed may still be at this very part.
    own = path.with_name(f"{path.stem}.{os.getpid()}")
    atomic.write(own, data.getvalue())
    own.replace(path)
    return block.number, note
