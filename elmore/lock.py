"""Lock a folder or file against a second writer, with a note on the holder.

The operating system releases a lock when its holder dies, so a lock file that a killed process
leaves behind does not keep others from taking the lock. Readers take no lock.
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

_MAX_BYTES = 1000  # of a note; a longer file is not a lock file
_log = logging.getLogger(__name__)


class Holder(NamedTuple):
    """The process that holds a lock."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        if self._has_ended():
            return f"process {self.pid} has ended, but a process it started still holds the lock"
        return f"process {self.pid} on {self.host} has been working there since {self.since}"

    def _has_ended(self) -> bool:
        if os.name == "nt" or self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)  # only checks that the process exists
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # another user's process, or not a process id
            return False
        return False


class Lock:
    """A lock held until `release`, garbage collection or the end of the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.release = weakref.finalize(self, _release, path, descriptor, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def acquire(path: Path, *, wait: bool = False) -> Lock:
    """Acquire the lock file `path`; missing parent folders are created.

    Args:
        path: The lock file; it is deleted when the lock is released.
        wait: Wait while another process holds it.

    Raises:
        DataError: Another process holds it and `wait` is false, or the file is not a lock.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:  # its last holder has just deleted the folder
            continue
        except OSError:
            if path.is_symlink() or path.is_dir():
                raise _not_a_lock(path) from None
            raise
        try:
            _lock(descriptor, path, wait=wait)
            if _is_current(descriptor, path):
                if not is_lock(path):
                    raise _not_a_lock(path)
                _write_note(descriptor)
                return Lock(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder deleted the file while releasing it


def is_lock(path: Path) -> bool:
    """Return whether a file is a lock file of elmore, held or left behind."""
    return path.is_file() and (not path.stat().st_size or holder(path) is not None)


def holder(path: Path) -> Holder | None:
    """Return the last holder of a lock; None if the file has no valid note."""
    try:
        with path.open("rb") as file:
            file.seek(1)  # on Windows the first byte of a held lock cannot be read
            content = strict_json.loads(file.read(_MAX_BYTES))
        known = Holder(content["pid"], content["host"], content["since"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    kinds = zip(known, (int, str, str), strict=True)
    return known if all(isinstance(value, kind) for value, kind in kinds) else None


def _lock(descriptor: int, path: Path, *, wait: bool) -> None:
    try:
        if lock_descriptor(descriptor, blocking=False):
            return
    except OSError as error:  # some network disks have no locks
        _log.warning(
            "%s: file locks do not work there (%s), so a second process could write at the same "
            "time; start only one",
            path.parent,
            error.strerror or error,
        )
        return
    owner = holder(path) or "another process is working there"
    if not wait:
        raise DataError(f"{path.parent}: {owner}; wait until it is done, or pass another name")
    _log.warning("%s: %s; waiting until it is done", path, owner)
    lock_descriptor(descriptor)


def _is_current(descriptor: int, path: Path) -> bool:
    """Return whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _not_a_lock(path: Path) -> DataError:
    return DataError(f"{path}: not a lock file of elmore; move it away")


def _write_note(descriptor: int) -> None:
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    note = Holder(os.getpid(), socket.gethostname(), since)._asdict()
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        os.write(descriptor, f" {json.dumps(note)}\n".encode())
    except OSError:  # a full disk: the lock is held anyway
        os.ftruncate(descriptor, 0)


def _release(path: Path, descriptor: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child must not release its parent's lock
        with contextlib.suppress(OSError):  # Windows cannot delete an open file
            if _is_current(descriptor, path):
                path.unlink()
    os.close(descriptor)
