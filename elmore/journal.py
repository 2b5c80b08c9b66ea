"""The journal of a long job: a folder of finished parts that one process at a time works in.

`job.json` says what the job is, so that it is only ever resumed as the same. What a part is, and
how one knows that it is whole, is for the room that writes it to say.
"""

import json
import shutil
from collections.abc import Collection
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from elmore import atomic, strict_json
from elmore.errors import DataError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

Job = TypeVar("Job", bound="DataclassInstance")


class Journal(Generic[Job]):
    """The folder of one job, whose parts are called `part-*`."""

    def __init__(
        self, folder: Path, job: Job, *, anew: bool = False, may_differ: Collection[str] = ()
    ) -> None:
        """Open a journal, or begin it; `may_differ` are fields of a job that change no result."""
        self.folder = folder
        self.job = job
        folder.mkdir(parents=True, exist_ok=True)
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
            self._refuse_another_job(may_differ)
        except BaseException:
            self.close()
            raise

    def _empty(self) -> None:
        """Delete the parts of another job; what says which job it was goes last."""
        for path in self.folder.glob("part-*"):
            path.unlink(missing_ok=True)  # a worker that outlived its run may be at it too
        (self.folder / "job.json").unlink(missing_ok=True)

    def _refuse_another_job(self, may_differ: Collection[str]) -> None:
        path = self.folder / "job.json"
        if not path.exists():
            atomic.write(path, json.dumps(asdict(self.job), indent=2).encode())
            return
        try:
            found = strict_json.loads(path.read_bytes())
        except ValueError as error:
            raise DataError(f"{path}: damaged; start over with --overwrite") from error
        if not isinstance(found, dict):
            raise DataError(f"{path}: damaged; start over with --overwrite")
        wanted = {field.name: getattr(self.job, field.name) for field in fields(self.job)}
        differ = [
            f"{name} was {found.get(name)!r} and is {value!r}"
            for name, value in wanted.items()
            if name not in may_differ and found.get(name) != value
        ]
        if differ:
            raise DataError(
                f"{self.folder}: begun as another job: {', '.join(differ)}; resume it as it was, "
                "or start over with --overwrite"
            )

    def close(self) -> None:
        """Let others in."""
        self._lock.close()

    def remove(self) -> None:
        """Delete the journal, when the result has its name."""
        self.close()
        trash = trash_of(self.folder)
        shutil.rmtree(trash, ignore_errors=True)
        self.folder.rename(trash)
        shutil.rmtree(trash)


def refuse_taken(out: Path, folder: Path, *, taken: bool, resume: bool, overwrite: bool) -> None:
    """Refuse to begin where a result is, or an unfinished job, unless it is said what is meant."""
    if folder.exists() and not (resume or overwrite):
        raise DataError(f"{folder}: an unfinished job; go on with --resume, or --overwrite it")
    if taken and not overwrite and not (resume and folder.exists()):
        unfinished = ", and no unfinished job is beside it" if resume else ""
        raise DataError(f"{out} exists already{unfinished}; pass another name, or --overwrite")


def refuse_full_disk(out: Path, needed: float) -> None:
    """Look before the result is written: the parts stay beside it until it is whole."""
    free = shutil.disk_usage(out.parent).free
    if free < needed:
        raise DataError(
            f"{out}: no space left: {needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are "
            "free; make room and go on with --resume"
        )


def trash_of(folder: Path) -> Path:
    """Say what a journal is called while it is deleted."""
    return folder.with_name(f"{folder.name}.done")
