"""C that comes with the package: built when it is first used, kept in the cache, never needed.

Whoever has no compiler has None here, and goes another way.
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
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if os.environ.get("ELMORE_COMPILED") == "0" or compiler is None:
        return None
    try:
        return ctypes.CDLL(str(_built(source, compiler, [*_FLAGS, *flags])))
    except (OSError, subprocess.SubprocessError) as error:
        _log.info("%s is not used: it could not be built (%s)", source.name, error)
        return None


def _built(source: Path, compiler: str, flags: list[str]) -> Path:
    """Compile where that has not been done yet."""
    version = subprocess.run(  # noqa: S603 -- the compiler of whoever runs this
        [compiler, "--version"], capture_output=True, check=True, timeout=_PATIENCE
    ).stdout
    texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
    known_by = [*texts, version, *map(str.encode, [platform.machine(), *flags])]
    digest = hashlib.sha256(b"\0".join(known_by)).hexdigest()[:20]
    place = cache.folder() / "compiled" / f"{source.stem}-{digest}.so"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as aside:
            made = Path(aside) / place.name
            subprocess.run(  # noqa: S603
                [compiler, *flags, str(source), "-o", str(made), "-lm"],
                capture_output=True,
                check=True,
                timeout=_PATIENCE,
            )
            made.replace(place)
    return place
