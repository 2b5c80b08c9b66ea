"""The journal of a long job: a folder of finished parts, used by one process at a time.

`job.json` describes the job, so that it is resumed only with the same settings. Subclasses define
what a part is and how to check it.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from types import MappingProxyType
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

    A journal is recognised by the format number in `job.json`; only files and folders with known
    names are ever deleted.
    """

    FILES: ClassVar[re.Pattern[str]]
    """Names of the files in this kind of journal."""
    FOLDERS: ClassVar[frozenset[str]]
    """Names of the folders."""
    MAY_DIFFER: ClassVar[frozenset[str]] = frozenset()
    """Fields of a job that do not change the result."""
    RENAMED_KEYS: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Keys of earlier formats of `job.json`, old to new."""

    def __init__(self, folder: Path, job: Job, *, restart: bool = False) -> None:
        """Open or create a journal; `restart` deletes the parts of an earlier job."""
        self.folder = folder
        self.job = job
        atomic.remove_leftovers(folder)
        self.check_folder(folder)
        self._lock = lock.acquire(folder / _LOCK)
        try:
            if restart or not (folder / _JOB).exists():
                self._delete_parts()
            self._check_same_job()
        except BaseException:
            self.close()
            raise

    @classmethod
    def check_folder(cls, folder: Path) -> None:
        """Raise DataError for a folder that is not a journal, or that has other files in it."""
        if not os.path.lexists(folder):
            return
        action = "move it away, or pass another name for the result"
        if folder.is_symlink() or not folder.is_dir():
            raise DataError(f"{folder} exists and is not a journal of elmore; {action}")
        paths = sorted(folder.iterdir())
        for path in paths:
            if not cls._is_known(path):
                raise DataError(f"{folder} contains {path.name!r}, which is not ours; {action}")
        content = [path for path in paths if path.name != _LOCK and not _is_temporary(path)]
        if content and not config.has_format(folder / _JOB):
            raise DataError(
                f"{folder}: {_JOB} is missing, damaged or not ours, so nothing is deleted; {action}"
            )

    @classmethod
    def _is_known(cls, path: Path) -> bool:
        if path.is_symlink():
            return False
        if path.is_dir():
            return path.name in cls.FOLDERS or _is_temporary(path)
        if path.name == _LOCK:
            return lock.is_lock(path)
        known = path.name in (_JOB, f"{_JOB}.new") or cls.FILES.fullmatch(path.name)
        return bool(known) or _is_temporary(path)

    def own_files(self) -> list[Path]:
        """Return the files and folders of the journal, without foreign ones."""
        return sorted(path for path in self.folder.iterdir() if self._is_known(path))

    def _delete_parts(self) -> None:
        """Delete the parts, and `job.json` last, since it identifies the folder."""
        for path in self.own_files():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in (_LOCK, _JOB):
                path.unlink(missing_ok=True)  # a worker that outlived its run may delete it too
        (self.folder / _JOB).unlink(missing_ok=True)

    def _check_same_job(self) -> None:
        path = self.folder / _JOB
        if not path.exists():
            atomic.write(path, json.dumps(asdict(self.job), indent=2).encode())
            return
        saved = config.read_json(path)
        saved = {self.RENAMED_KEYS.get(key, key): value for key, value in saved.items()}
        for field in fields(self.job):  # what an earlier version did not know
            if field.default is not MISSING:
                saved.setdefault(field.name, field.default)
        differing = [
            f"{name} was {saved.get(name)!r} and is {value!r}"
            for name, value in vars(self.job).items()
            if name not in self.MAY_DIFFER and saved.get(name) != value
        ]
        if differing:
            raise DataError(
                f"{self.folder}: this is another job: {', '.join(differing)}; resume it with the "
                "same settings, or start again with --overwrite"
            )

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def remove(self) -> None:
        """Delete the journal after the result is written; keep foreign files."""
        if os.name == "nt":  # Windows cannot rename a folder with an open file
            self.close()
        if all(map(self._is_known, self.folder.iterdir())):
            atomic.remove(self.folder)
        else:
            _log.warning("%s: files that are not ours were left there", self.folder)
            self._delete_parts()
        self.close()


def check_output_free(
    out: Path, folder: Path, *, exists: bool, resume: bool, overwrite: bool
) -> None:
    """Raise DataError if a result or an unfinished job exists and neither option covers it."""
    if folder.exists() and not (resume or overwrite):
        raise DataError(f"{folder}: an unfinished job; pass --resume to continue, or --overwrite")
    if exists and not overwrite and not (resume and folder.exists()):
        unfinished = ", and there is no unfinished job beside it" if resume else ""
        raise DataError(f"{out} exists already{unfinished}; pass another name, or --overwrite")


def check_disk_space(out: Path, needed: float) -> None:
    """Raise DataError if the result does not fit on the disk beside the parts."""
    free = shutil.disk_usage(out.parent).free
    if free < needed:
        raise DataError(
            f"{out}: no space left: {needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are "
            "free; free some space and continue with --resume"
        )


def _is_temporary(path: Path) -> bool:
    return atomic.is_temporary(path.name)
