"""Write files and folders that are complete or absent: first aside, then renamed.

Whatever stops a writer (a full disk, an error, a kill), the name asked for never holds a part. Each
writer has a temporary name of its own in the same folder, `.NAME.0123456789abcdef.new`, and keeps
it locked: what a killed writer leaves is not locked, and the next writer of NAME removes it.
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

from elmore.errors import ElmoreError

_LOCK = "lock"  # in a temporary folder, beside what it is about
_MAX_CHARACTERS = 50  # of a name that its temporary names repeat: they may have 255 bytes


@contextmanager
def folder(
    destination: Path,
    *,
    replaces: Set[str] = frozenset(),
    is_ours: Callable[[Path], bool] = lambda folder: True,
) -> Iterator[Path]:
    """Give an empty folder to fill; it takes its name when the block ends well.

    The name must be free or an empty folder. A folder that holds nothing but files named in
    `replaces` is replaced if `is_ours` knows it; anything else is somebody's, and refused.
    """
    destination = Path(os.path.abspath(destination))  # noqa: PTH100 -- a link is not followed
    sweep(destination)
    _refuse_taken(destination, replaces, is_ours)
    destination.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_folder(destination) as aside:
        new = aside / "new"
        new.mkdir()
        yield new
        for path in (new, *new.rglob("*")):
            _finish(path, like=aside if path.is_dir() else aside / _LOCK)
        with _alone(destination):
            _refuse_taken(destination, replaces, is_ours)  # by somebody who came meanwhile
            if destination.exists():
                destination.rename(aside / "old")  # it goes back if the next line fails
            new.rename(destination)
        sync(destination.parent)


@contextmanager
def _alone(destination: Path) -> Iterator[None]:
    """Say in a sentence that a folder came or went between two steps of a writer."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise ElmoreError(
            f"{destination}: another process wrote it at the same time; try again"
        ) from error


@contextmanager
def file(path: Path) -> Iterator[BinaryIO]:
    """Give an empty file to fill; it takes its name when the block ends well.

    A file of that name is replaced at once and whole; the new one has its permissions. What a
    symbolic link names is replaced, not the link.
    """
    path = path.resolve() if path.is_symlink() else path
    sweep(path)
    new = _temporary_file(path)
    aside = Path(new.name)
    with new:
        try:
            yield new
            new.flush()
            if os.name == "nt":  # Windows renames no open file
                new.close()
            replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def write(path: Path, data: bytes) -> None:
    """Write a file; one of that name is replaced at once and whole."""
    with file(path) as new:
        new.write(data)


def replace(aside: Path, path: Path) -> None:
    """Give a finished file its name, for good when this returns.

    What a symbolic link names is replaced, not the link, also on another disk.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file():
        raise ElmoreError(f"{path} exists and is no file; pass another name")
    with contextlib.suppress(FileNotFoundError):
        shutil.copymode(path, aside)
    sync(aside)
    try:
        aside.replace(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with aside.open("rb") as found, file(path) as new:
            shutil.copyfileobj(found, new)
        aside.unlink()
    sync(path.parent)


def remove(path: Path) -> None:
    """Delete a folder: it loses its name at once, and a kill leaves no half of it."""
    with _temporary_folder(path) as aside:
        path.rename(aside / "deleted")
        sync(path.parent)


def sweep(path: Path) -> None:
    """Remove what killed writers of a name left beside it.

    A folder that was moved away to be replaced, when the kill came, returns to its name.
    """
    if os.name == "nt":  # there a writer has to let go of its file before it can rename it
        return
    name = re.compile(f"{re.escape(_temporary_start(path.name))}[0-9a-f]{{16}}\\.new", re.DOTALL)
    with contextlib.suppress(OSError):  # a parent that is not there has no leftovers
        for entry in list(os.scandir(path.parent)):
            if name.fullmatch(entry.name):
                _sweep_one(Path(entry.path), path)


def is_temporary(name: str) -> bool:
    """Tell whether a name is one that writers use until they are done."""
    return re.fullmatch(r"\..+\.[0-9a-f]{16}\.new", name, re.DOTALL) is not None


def _sweep_one(aside: Path, path: Path) -> None:
    is_folder = aside.is_dir()
    try:
        descriptor = os.open(aside / _LOCK if is_folder else aside, os.O_RDWR)
    except OSError:  # it is gone, or empty still, or another user's
        with contextlib.suppress(OSError):
            aside.rmdir()
        return
    try:
        if not lock_descriptor(descriptor, blocking=False):
            return  # its writer lives
        if is_folder:
            _remove_folder(aside, path)
        else:
            aside.unlink(missing_ok=True)
    except OSError:  # a disk without locks
        return
    finally:
        os.close(descriptor)


def _temporary_start(name: str) -> str:
    if len(name) > _MAX_CHARACTERS:
        name = f"{name[:20]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    return f".{name}."


def _temporary_name(path: Path) -> Path:
    return path.with_name(f"{_temporary_start(path.name)}{secrets.token_hex(8)}.new")


def _temporary_file(path: Path) -> BinaryIO:
    while True:
        new = _temporary_name(path).open("xb")
        if _locked(new):
            return new
        new.close()


@contextmanager
def _temporary_folder(destination: Path) -> Iterator[Path]:
    while True:
        aside = _temporary_name(destination)
        aside.mkdir()
        try:
            holder = (aside / _LOCK).open("xb")
        except FileNotFoundError:  # it was swept away before it had its lock
            continue
        if _locked(holder):
            break
        holder.close()
    with holder:
        try:
            yield aside
        finally:
            _remove_folder(aside, destination)


def _locked(new: BinaryIO) -> bool:
    """Lock a new temporary file; False where it was swept away before it had its lock."""
    with contextlib.suppress(OSError):  # some network disks know no locks
        lock_descriptor(new.fileno())
    return os.fstat(new.fileno()).st_nlink > 0


def _remove_folder(aside: Path, destination: Path) -> None:
    """Remove a temporary folder; what was moved there and not replaced goes back first.

    Its lock goes last: without it, nobody could tell what a kill leaves from another's folder.
    """
    if (aside / "old").exists() and not os.path.lexists(destination):
        (aside / "old").rename(destination)
    with contextlib.suppress(OSError):
        for path in aside.iterdir():
            if path.is_symlink():
                path.unlink()
            elif path.name != _LOCK:
                shutil.rmtree(path, ignore_errors=True)
        if os.listdir(aside) == [_LOCK]:  # noqa: PTH208 -- names are all it takes
            (aside / _LOCK).unlink()
            aside.rmdir()


def _refuse_taken(destination: Path, replaces: Set[str], is_ours: Callable[[Path], bool]) -> None:
    if not os.path.lexists(destination):
        return
    if destination.is_symlink() or not destination.is_dir():
        raise ElmoreError(f"{destination} exists and is no folder; pass another name")
    found = sorted(path.name for path in destination.iterdir())
    others = [name for name in found if name not in replaces]
    if others and replaces:
        raise ElmoreError(
            f"{destination} holds {others[0]!r}, which is not ours to replace; pass another name"
        )
    if others:
        raise ElmoreError(f"{destination} exists already; pass another name, or --overwrite")
    if found and not is_ours(destination):
        raise ElmoreError(
            f"{destination} holds {found[0]!r} and was not written by elmore, so it is not ours to "
            "replace; pass another name"
        )


def _finish(path: Path, like: Path) -> None:
    """Make it last, and readable as what a user writes is: some libraries make files private."""
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
