"""C that comes with the package: built when it is first used, kept in the cache, never needed.

Whoever has no compiler has None here, and goes another way. The name of a built file holds the
digest of its bytes, so one that was damaged on disk is never loaded: it is built again, once, with
a warning.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from elmore import cache

# No fused multiply-add but those that are asked for: an element's bits must not depend on whether
# it stands in a whole vector or in the rest.
_FLAGS = (
    *("-O3", "-std=c11", "-fPIC", "-shared", "-fopenmp"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
_PATIENCE = 120  # seconds

_log = logging.getLogger(__name__)


@lru_cache
def library(source: Path, flags: Sequence[str] = ()) -> ctypes.CDLL | None:
    """Give a C file as a library; None where it cannot be built, or must not be.

    `ELMORE_COMPILED=0` says that it must not.
    """
    try:
        return _load(source, flags)
    except _MissingError as error:
        _log.info("%s is not used: %s", source.name, error)
        return None


def why_missing(source: Path, flags: Sequence[str] = ()) -> str | None:
    """Return why a library is missing, in words for a user, or None where it is not."""
    if library(source, flags) is not None:
        return None
    try:
        _load(source, flags)
    except _MissingError as error:
        return str(error)
    return None


class _MissingError(Exception):
    """Why there is no library."""


def _load(source: Path, flags: Sequence[str]) -> ctypes.CDLL:
    if os.environ.get("ELMORE_COMPILED") == "0":
        raise _MissingError("ELMORE_COMPILED=0 forbids it")
    name = os.environ.get("CC") or "cc"
    compiler = shutil.which(name)
    if compiler is None:
        raise _MissingError(f"there is no C compiler {name!r} here")
    try:
        place = _built(source, compiler, [*_FLAGS, *flags])
    except (OSError, subprocess.SubprocessError) as error:
        raise _MissingError(f"it could not be built ({error})") from error
    try:
        return ctypes.CDLL(str(place))
    except OSError as error:
        raise _MissingError(f"it was built but cannot be loaded ({error})") from error


def _built(source: Path, compiler: str, flags: list[str]) -> Path:
    """Return the library in the cache; build it where it is missing or damaged."""
    version = subprocess.run(  # noqa: S603 -- the compiler of whoever runs this
        [compiler, "--version"], capture_output=True, check=True, timeout=_PATIENCE
    ).stdout
    texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
    made_of = _digest(b"\0".join([*texts, version, *map(str.encode, [platform.machine(), *flags])]))
    folder, name = cache.folder() / "compiled", f"{source.stem}-{made_of}"
    damaged = []
    for place in sorted(folder.glob(f"{name}-*.so")):
        if _is_intact(place):
            return place
        damaged.append(place)
    for place in damaged:
        _log.warning("%s is damaged, so %s is built again", place, source.name)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        made = Path(aside) / "made.so"
        subprocess.run(  # noqa: S603
            [compiler, *flags, str(source), "-o", str(made), "-lm"],
            capture_output=True,
            check=True,
            timeout=_PATIENCE,
        )
        place = folder / f"{name}-{_digest(made.read_bytes())}.so"
        # A file or a link under this name is replaced at once: another process may be reading it
        for other in damaged:
            if other != place or other.is_dir():
                _remove(other)
        made.replace(place)
    return place


def _is_intact(place: Path) -> bool:
    """Return whether the name of a built file ends with the digest of its bytes."""
    try:
        return place.stem.endswith(f"-{_digest(place.read_bytes())}")
    except OSError:  # a folder, a link to nothing, or a file that may not be read
        return False


def _remove(place: Path) -> None:
    """Remove whatever has this name."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]
