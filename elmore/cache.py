"""The cache folder: downloaded models, computed layers, compiled kernels."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return $ELMORE_CACHE, else elmore in $XDG_CACHE_HOME, else ~/.cache/elmore."""
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("ELMORE_CACHE") or f"{shared}/elmore").expanduser()
