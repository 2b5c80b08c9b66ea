"""The journal of a long job: a folder of finished parts that one process at a time works in.

`job.json` says what the job is, so that it is only ever resumed as the same. What a part is, and
how one knows that it is whole, is for the room that writes it to say.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Collection
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from elmore import atomic, config, lock
from elmore.errors import DataError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_JOB, _LOCK = "job.json", "lock"
_log = logging.getLogger(__name__)

Job = TypeVar("Job", bound="DataclassInstance")


class Journal(Generic[Job]):
    """The folder of one job.

    It is known as ours by the number of a format in `job.json`, and nothing is deleted in it that
    is not named as a file or folder of ours.
    """

    FILES: ClassVar[re.Pattern[str]]
    """The names of the files that a job of this kind writes into its journal."""
    FOLDERS: ClassVar[frozenset[str]]
    """The names of the folders likewise."""

    def __init__(
        self, folder: Path, job: Job, *, anew: bool = False, may_differ: Collection[str] = ()
    ) -> None:
        """Open a journal, or begin it; `may_differ` are fields of a job that change no result."""
        self.folder = folder
        self.job = job
        atomic.sweep(folder)
        self.refuse_foreign(folder)
        self._lock = lock.acquire(folder / _LOCK)
        try:
            if anew or not (folder / _JOB).exists():
                self._empty()
            self._refuse_another_job(may_differ)
        except BaseException:
            self.close()
            raise

    @classmethod
    def refuse_foreign(cls, folder: Path) -> None:
        """Refuse a folder that is not a journal of ours, or in which a stranger's file lies."""
        if not os.path.lexists(folder):
            return
        cure = "move it away, or pass another name for the result"
        if folder.is_symlink() or not folder.is_dir():
            raise DataError(f"{folder} exists and is no folder of ours; {cure}")
        found = sorted(folder.iterdir())
        for path in found:
            if not cls._is_ours(path):
                raise DataError(f"{folder} holds {path.name!r}, which is not ours; {cure}")
        content = [path for path in found if path.name != _LOCK and not _is_temporary(path)]
        if content and not config.says_format(folder / _JOB):
            raise DataError(
                f"{folder}: {_JOB} is missing, damaged or not ours, so nothing there is deleted; "
                f"{cure}"
            )

    @classmethod
    def _is_ours(cls, path: Path) -> bool:
        name, of_a_file = path.name, cls.FILES.fullmatch(path.name)
        if path.is_symlink():
            return False
        if path.is_dir():
            return name in cls.FOLDERS or _is_temporary(path)
        if name == _LOCK:
            return lock.is_lock(path)
        return bool(of_a_file) or name in (_JOB, f"{_JOB}.new") or _is_temporary(path)

    def own_files(self) -> list[Path]:
        """Give what the journal holds of ours, and nothing that came there otherwise."""
        return sorted(path for path in self.folder.iterdir() if self._is_ours(path))

    def _empty(self) -> None:
        """Delete the parts of another job; what says which job it was goes last."""
        for path in self.own_files():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in (_LOCK, _JOB):
                path.unlink(missing_ok=True)  # a worker that outlived its run may be at it too
        (self.folder / _JOB).unlink(missing_ok=True)

    def _refuse_another_job(self, may_differ: Collection[str]) -> None:
        path = self.folder / _JOB
        if not path.exists():
            atomic.write(path, json.dumps(asdict(self.job), indent=2).encode())
            return
        found = config.read_json(path)
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
        self._lock.release()

    def remove(self) -> None:
        """Delete the journal, when the result has its name; a stranger's files stay there."""
        if os.name == "nt":  # Windows renames no folder of which a file is open
            self.close()
        if all(map(self._is_ours, self.folder.iterdir())):
            atomic.remove(self.folder)
        else:
            _log.warning("%s: what is not ours there was left alone", self.folder)
            self._empty()
        self.close()


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


def _is_temporary(path: Path) -> bool:
    return atomic.is_temporary(path.name)
