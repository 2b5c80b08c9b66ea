"""Files and folders that are complete or absent: written aside, then renamed.

Whatever stops a writer (a full disk, an error, a kill), the name asked for never holds a part.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmore.errors import ElmoreError


@contextmanager
def folder(destination: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give an empty folder to fill; it takes its name when the block ends well."""
    if not overwrite and (destination.is_file() or _holds_something(destination)):
        raise ElmoreError(f"{destination} exists already; pass another name, or --overwrite")
    destination.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    try:
        yield aside
        for path in (aside, *aside.rglob("*")):
            _finish(path)
        if destination.is_dir():
            replaced = Path(tempfile.mkdtemp(prefix=".replaced.", dir=destination.parent))
            destination.rename(replaced / "old")
            aside.rename(destination)
            shutil.rmtree(replaced)
        else:
            destination.unlink(missing_ok=True)
            aside.rename(destination)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _holds_something(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def _finish(path: Path) -> None:
    """Make it last, and readable as what a user writes is (tempfile makes it private)."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
