"""Simulate a full disk for what is written atomically.

Used by probe/test_occurrence_map and probe/suite/test_runner.
"""

import errno
import os
from pathlib import Path

import pytest

from elmore import atomic


def fill_disk(patch: pytest.MonkeyPatch) -> None:
    """Let every atomic write fail as it does on a full disk."""

    def write(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(atomic, "write", write)
