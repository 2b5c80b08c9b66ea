"""Write files and folders atomically: under a temporary name, then renamed.

Whatever stops a writer (a full disk, an error, a kill), the destination is complete or absent. Each
writer has its own temporary name in the same folder, `.NAME.0123456789abcdef.new`, and keeps it
locked: the leftover of a killed writer is not locked, and the next writer of NAME removes it.
"""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import lock_descriptor

from elmore.errors import DataError, ElmoreError

_LOCK = "lock"  # in a temporary folder, beside its content
_MAX_NAME = 50  # characters of a name in its temporary names, which may have 255 bytes


@contextmanager
def folder(
    destination: Path,
    *,
    replaces: Set[str] = frozenset(),
    is_ours: Callable[[Path], bool] = lambda folder: True,
) -> Iterator[Path]:
    """Yield an empty folder that is renamed to `destination` when the block succeeds.

    Args:
        destination: Must not exist, or be an empty folder, or one that may be replaced.
        replaces: Names of files; an existing folder with only such files is replaced.
        is_ours: Further condition for replacing a folder.

    Raises:
        ElmoreError: The destination exists and may not be replaced.
    """
    destination = Path(os.path.abspath(destination))  # noqa: PTH100 -- a link is not followed
    remove_leftovers(destination)
    _check_destination(destination, replaces, is_ours)
    destination.parent.mkdir(parents=True, exist_ok=True)
    with _name_in_errors(destination), _temporary_folder(destination) as tmp:
        new = tmp / "new"
        new.mkdir()
        yield new
        for path in (new, *new.rglob("*")):
            _finish(path, like=tmp if path.is_dir() else tmp / _LOCK)
        with _explain_race(destination):
            _check_destination(
                destination, replaces, is_ours
            )  # another process may have created it meanwhile
            if destination.exists():
                destination.rename(tmp / "old")  # moved back if the next line fails
            new.rename(destination)
        sync(destination.parent)


@contextmanager
def _explain_race(destination: Path) -> Iterator[None]:
    """Explain that another process changed the destination between two steps."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise ElmoreError(
            f"{destination}: another process wrote it at the same time; try again"
        ) from error


@contextmanager
def _name_in_errors(path: Path) -> Iterator[None]:
    """Add the path to an error such as a full disk, which names no file that is open already."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def file(path: Path) -> Iterator[BinaryIO]:
    """Yield an empty file that is renamed to `path` when the block succeeds.

    An existing file is replaced atomically, and its permissions are kept. If `path` is a symbolic
    link, its target is replaced.
    """
    path = path.resolve() if path.is_symlink() else path
    remove_leftovers(path)
    new = _temporary_file(path)
    tmp = Path(new.name)
    with _name_in_errors(path), new:
        try:
            yield new
            new.flush()
            if os.name == "nt":  # Windows cannot rename an open file
                new.close()
            replace(tmp, path)
        except BaseException:
            tmp.unlink(missing_ok=True)
            raise


def write(path: Path, data: bytes) -> None:
    """Write a file atomically, replacing an existing one."""
    with file(path) as new:
        new.write(data)


@contextmanager
def explain_write_errors(path: Path, advice: str) -> Iterator[None]:
    """Raise DataError with the path and the advice for an error such as a full disk.

    What the system says about a file that is open already does not name it.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot be written ({reason}); {advice}") from error


def replace(tmp: Path, path: Path) -> None:
    """Rename a finished file, durably; it may replace the target of a link on another disk."""
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file():
        raise ElmoreError(f"{path} exists and is not a file; pass another name")
    with contextlib.suppress(FileNotFoundError):
        shutil.copymode(path, tmp)
    sync(tmp)
    try:
        tmp.replace(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with tmp.open("rb") as source, file(path) as new:
            shutil.copyfileobj(source, new)
        tmp.unlink()
    sync(path.parent)


def remove(path: Path) -> None:
    """Delete a folder atomically: it is renamed first, so that a kill leaves no part of it."""
    with _temporary_folder(path) as tmp:
        path.rename(tmp / "deleted")
        sync(path.parent)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files of killed writers of a name.

    A folder that a killed writer had moved away to replace it is moved back.
    """
    if os.name == "nt":  # there a writer has to close its file before it can rename it
        return
    name = re.compile(f"{re.escape(_temporary_start(path.name))}[0-9a-f]{{16}}\\.new", re.DOTALL)
    with contextlib.suppress(OSError):  # the parent does not exist
        for entry in list(os.scandir(path.parent)):
            if name.fullmatch(entry.name):
                _remove_leftover(Path(entry.path), path)


def is_temporary(name: str) -> bool:
    """Return whether a name is a temporary name of a writer."""
    return re.fullmatch(r"\..+\.[0-9a-f]{16}\.new", name, re.DOTALL) is not None


def _remove_leftover(tmp: Path, path: Path) -> None:
    is_folder = tmp.is_dir()
    try:
        descriptor = os.open(tmp / _LOCK if is_folder else tmp, os.O_RDWR)
    except OSError:  # it is gone, or still empty, or owned by another user
        with contextlib.suppress(OSError):
            tmp.rmdir()
        return
    try:
        if not lock_descriptor(descriptor, blocking=False):
            return  # its writer is alive
        if is_folder:
            _remove_folder(tmp, path)
        else:
            tmp.unlink(missing_ok=True)
    except OSError:  # a disk without locks
        return
    finally:
        os.close(descriptor)


def _temporary_start(name: str) -> str:
    if len(name) > _MAX_NAME:
        name = f"{name[:20]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    return f".{name}."


def _temporary_name(path: Path) -> Path:
    return path.with_name(f"{_temporary_start(path.name)}{secrets.token_hex(8)}.new")


def _temporary_file(path: Path) -> BinaryIO:
    while True:
        new = _temporary_name(path).open("xb")
        if _try_lock(new):
            return new
        new.close()


@contextmanager
def _temporary_folder(destination: Path) -> Iterator[Path]:
    while True:
        tmp = _temporary_name(destination)
        tmp.mkdir()
        try:
            holder = (tmp / _LOCK).open("xb")
        except FileNotFoundError:  # another writer removed it before it was locked
            continue
        if _try_lock(holder):
            break
        holder.close()
    with holder:
        try:
            yield tmp
        finally:
            _remove_folder(tmp, destination)


def _try_lock(new: BinaryIO) -> bool:
    """Lock a new temporary file; False if another writer removed it before it was locked."""
    with contextlib.suppress(OSError):  # some network disks have no locks
        lock_descriptor(new.fileno())
    return os.fstat(new.fileno()).st_nlink > 0


def _remove_folder(tmp: Path, destination: Path) -> None:
    """Remove a temporary folder, after moving back what it should have replaced.

    Its lock is removed last, since it identifies the folder if this process is killed.
    """
    if (tmp / "old").exists() and not os.path.lexists(destination):
        (tmp / "old").rename(destination)
    with contextlib.suppress(OSError):
        for path in tmp.iterdir():
            if path.is_symlink():
                path.unlink()
            elif path.name != _LOCK:
                shutil.rmtree(path, ignore_errors=True)
        if os.listdir(tmp) == [_LOCK]:  # noqa: PTH208 -- names are all it takes
            (tmp / _LOCK).unlink()
            tmp.rmdir()


def _check_destination(
    destination: Path, replaces: Set[str], is_ours: Callable[[Path], bool]
) -> None:
    if not os.path.lexists(destination):
        return
    if destination.is_symlink() or not destination.is_dir():
        raise ElmoreError(f"{destination} exists and is not a folder; pass another name")
    names = sorted(path.name for path in destination.iterdir())
    others = [name for name in names if name not in replaces]
    if others and replaces:
        raise ElmoreError(
            f"{destination} contains {others[0]!r}, which elmore did not write; pass another name"
        )
    if others:
        raise ElmoreError(f"{destination} exists already; pass another name, or --overwrite")
    if names and not is_ours(destination):
        raise ElmoreError(
            f"{destination} contains {names[0]!r} and was not written by elmore, so it is not "
            "replaced; pass another name"
        )


def _finish(path: Path, like: Path) -> None:
    """Sync to disk, and set the default permissions: some libraries create private files."""
    path.chmod(stat.S_IMODE(like.stat().st_mode))
    sync(path)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle for a folder
    # Windows syncs only what is open for writing
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
