"""Files and folders that are complete or absent: written aside, then renamed.

Whatever stops a writer (a full disk, an error, a kill), the name asked for never holds a part.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from elmore.errors import ElmoreError


@contextmanager
def folder(destination: Path, *, replaces: Set[str] = frozenset()) -> Iterator[Path]:
    """Give an empty folder to fill; it takes its name when the block ends well.

    The name must be free or an empty folder. A folder that holds nothing but files named in
    `replaces` is replaced; anything else is somebody's, and refused.
    """
    destination = Path(os.path.abspath(destination))  # noqa: PTH100 -- a link is not followed
    _refuse_taken(destination, replaces)
    destination.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    try:
        new = aside / "new"
        new.mkdir()
        yield new
        for path in (new, *new.rglob("*")):
            _finish(path)
        if destination.exists():
            _swap(destination, new, aside / "old")
        else:
            new.rename(destination)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write(path: Path, data: bytes) -> None:
    """Write a file; one of that name is replaced at once and whole."""
    aside = path.with_name(f"{path.name}.new")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _refuse_taken(destination: Path, replaces: Set[str]) -> None:
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


def _swap(destination: Path, new: Path, old: Path) -> None:
    destination.rename(old)
    try:
        new.rename(destination)
    except BaseException:
        old.rename(destination)
        raise


def _finish(path: Path) -> None:
    """Make it last, and readable as what a user writes is (tempfile makes it private)."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
    sync(path)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle for a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
