"""Lock a folder or file against a second writer, and say who holds the lock.

The operating system lets go of a lock when its holder dies, however it dies, so a lock file that a
killed process leaves behind blocks nobody. Readers take no lock.
"""

import contextlib
import json
import logging
import os
import socket
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

from filelock import lock_descriptor

from elmore import strict_json
from elmore.errors import DataError

_MAX_BYTES = 1000  # of a note; a longer file is somebody else's
_log = logging.getLogger(__name__)


class Holder(NamedTuple):
    """Who holds a lock."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        if self._has_ended():
            return f"process {self.pid} has ended, but a process it started still holds the lock"
        return f"process {self.pid} on {self.host} has been at work there since {self.since}"

    def _has_ended(self) -> bool:
        if os.name == "nt" or self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)  # it sends nothing
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # another user's, or no number of a process
            return False
        return False


class Lock:
    """A lock that this process holds until `release`, until nothing refers to it, or its end."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.release = weakref.finalize(self, _release, path, descriptor, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def acquire(path: Path, *, wait: bool = False) -> Lock:
    """Take the lock whose file is `path`; its folder is made where it is missing.

    Args:
        path: the lock file; it is deleted when the lock is released.
        wait: whether to wait while another process holds it.

    Raises:
        DataError: if another process holds it and `wait` is false, or if the file is no lock.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:  # whoever held it has just deleted the folder
            continue
        except OSError:
            if path.is_symlink() or path.is_dir():
                raise _foreign(path) from None
            raise
        try:
            _take(descriptor, path, wait=wait)
            if _is_current(descriptor, path):
                if not is_lock(path):
                    raise _foreign(path)
                _sign(descriptor)
                return Lock(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # of a file that its holder deleted while it let go


def is_lock(path: Path) -> bool:
    """Tell whether a file is a lock file of ours, held or left behind."""
    return path.is_file() and (not path.stat().st_size or holder(path) is not None)


def holder(path: Path) -> Holder | None:
    """Say who took a lock last; None where that is not to be read."""
    try:
        with path.open("rb") as file:
            file.seek(1)  # Windows lets nobody else read the first byte of a lock that is held
            found = strict_json.loads(file.read(_MAX_BYTES))
        known = Holder(found["pid"], found["host"], found["since"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    kinds = zip(known, (int, str, str), strict=True)
    return known if all(isinstance(value, kind) for value, kind in kinds) else None


def _take(descriptor: int, path: Path, *, wait: bool) -> None:
    try:
        if lock_descriptor(descriptor, blocking=False):
            return
    except OSError as error:  # some network disks know no locks
        _log.warning(
            "%s: locks do not work there (%s), so nothing keeps a second process from writing at "
            "the same time; start only one",
            path.parent,
            error.strerror or error,
        )
        return
    found = holder(path) or "another process is at work there"
    if not wait:
        raise DataError(f"{path.parent}: {found}; wait until it is done, or pass another name")
    _log.warning("%s: %s; waiting until it is done", path, found)
    lock_descriptor(descriptor)


def _is_current(descriptor: int, path: Path) -> bool:
    """Tell whether a name still is that of an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _foreign(path: Path) -> DataError:
    return DataError(f"{path}: not a lock file of elmore; move it away")


def _sign(descriptor: int) -> None:
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    note = Holder(os.getpid(), socket.gethostname(), since)._asdict()
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        os.write(descriptor, f" {json.dumps(note)}\n".encode())
    except OSError:  # a full disk: it is held all the same
        os.ftruncate(descriptor, 0)


def _release(path: Path, descriptor: int, pid: int) -> None:
    if os.getpid() == pid:  # a fork has the lock of its parent, and leaves it alone
        with contextlib.suppress(OSError):  # Windows deletes no open file
            if _is_current(descriptor, path):
                path.unlink()
    os.close(descriptor)
