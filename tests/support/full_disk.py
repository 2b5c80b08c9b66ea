"""Simulate a full disk, for what is written atomically or for files of one name.

Used by cli/test_embed, embed/jobs/test_journal, probe/neighbors/test_writer,
probe/test_occurrence_map and probe/suite/test_runner.
"""

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from elmore import atomic


def fill_disk(patch: pytest.MonkeyPatch) -> None:
    """Let every atomic write fail as it does on a full disk."""

    def write(path: Path, data: bytes) -> None:
        raise _no_space()

    patch.setattr(atomic, "write", write)


def limit_files(patch: pytest.MonkeyPatch, name: str, size: int) -> None:
    """Let files of a name that are opened from now on have at most `size` bytes."""
    open_file = Path.open

    def limited(self: Path, mode: str = "r", *more: Any, **others: Any) -> Any:
        if self.name == name and mode in ("wb", "ab"):
            return io.BufferedWriter(_LimitedFile(self, mode, size))
        return open_file(self, mode, *more, **others)

    patch.setattr(Path, "open", limited)


class _LimitedFile(io.FileIO):
    def __init__(self, path: Path, mode: str, size: int) -> None:
        super().__init__(path, mode)
        self._most = size

    def write(self, data: Any) -> int:
        if os.fstat(self.fileno()).st_size + len(data) > self._most:
            raise _no_space()
        return super().write(data)


def _no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
