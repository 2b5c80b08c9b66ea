"""The sha256 of a file, and the record of it that stands beside the file as `NAME.sha256`."""

import contextlib
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from elmore import atomic
from elmore.errors import WeightsError


def digest(path: Path) -> str:
    """Give the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record_path(path: Path) -> Path:
    """Say where the record of a file stands."""
    return path.with_name(f"{path.name}.sha256")


def recorded(path: Path) -> str | None:
    """Give what the file was when it first came, where that is known."""
    with contextlib.suppress(FileNotFoundError):
        line = record_path(path).read_text("utf-8", errors="replace")
        if match := re.match(r"[0-9a-fA-F]{64}\b", line):
            return match[0]
    return None


def record(path: Path, found: str) -> None:
    """Write the record, in the format of sha256sum."""
    atomic.write(record_path(path), f"{found}  {path.name}\n".encode())


def verify(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder of which some file is not what its record says."""
    for path in (folder / name for name in names):
        expected, found = recorded(path), digest(path)
        if found != expected:
            raise WeightsError(
                f"{path}: its sha256 is {found}, expected {expected or 'a record beside it'}; the "
                "file was changed or damaged, so install elmore again"
            )
