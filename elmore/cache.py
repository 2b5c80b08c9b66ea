"""Where files are kept that can be had again: models brought here, layers, compiled parts."""

import os
from pathlib import Path


def folder() -> Path:
    """Give $ELMORE_CACHE, else elmore in $XDG_CACHE_HOME, else ~/.cache/elmore."""
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("ELMORE_CACHE") or f"{shared}/elmore").expanduser()
