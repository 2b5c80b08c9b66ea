"""The sha256 of a file, and its record in `NAME.sha256` beside the file."""

import contextlib
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from elmore import atomic
from elmore.errors import WeightsError


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record_path(path: Path) -> Path:
    """Return the path of the record of a file."""
    return path.with_name(f"{path.name}.sha256")


def read_record(path: Path) -> str | None:
    """Return the recorded sha256 of a file; None if there is no record."""
    with contextlib.suppress(FileNotFoundError):
        line = record_path(path).read_text("utf-8", errors="replace")
        if match := re.match(r"[0-9a-fA-F]{64}\b", line):
            return match[0]
    return None


def write_record(path: Path, sha256: str) -> None:
    """Record the sha256 of a file, in the format of sha256sum."""
    atomic.write(record_path(path), f"{sha256}  {path.name}\n".encode())


def verify(folder: Path, names: Iterable[str], *, advice: str) -> None:
    """Raise WeightsError, which ends in `advice`, if a file is missing or not as recorded."""
    for path in (folder / name for name in names):
        if not path.is_file():
            raise WeightsError(f"{path}: the file is missing; {advice}")
        expected, found = read_record(path), file_sha256(path)
        if found != expected:
            raise WeightsError(
                f"{path}: its sha256 is {found}, expected {expected or 'a record beside it'}; the "
                f"file was changed or damaged: {advice}"
            )
