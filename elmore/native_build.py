"""The native library: it comes with the wheel, else it is built on first use and cached.

One shared library holds the kernels for every instruction set of an architecture, and chooses by
the CPU at run time. Nothing depends on it but speed, and bits that do not depend on the batch.
Whoever has neither the wheel's library nor a C compiler has none.

The build of the wheel (hatch_build.py) runs this file by itself, so it imports nothing of elmore
before the cache is needed.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

LIBRARY = "libelmore.so"
SERIAL = "libelmore_serial.so"
"""The same for one thread, without OpenMP: for machines that lack its run-time library."""
FORBID = "ELMORE_NATIVE"  # "0" in the environment: no native library
SLOWER = "embedding on a CPU is slower, and bits of a vector depend on its batch"

# No fused multiply-add but the written ones: an element must have the same bits in a whole vector
# and in the remainder of a loop.
_FLAGS = (
    *("-O3", "-std=c11", "-fPIC", "-fopenmp", "-fvisibility=hidden"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
_LINK = ("-shared", "-fopenmp", "-s", "-Wl,--build-id=none")
_AVX512 = (
    *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx2", "-mfma"),
    "-mprefer-vector-width=512",
)
_INSTRUCTION_SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "avx2": ("-mavx2", "-mfma"),
        "avx512": _AVX512,
        "vnni": (*_AVX512, "-mavx512vnni"),
        "amx": (*_AVX512, "-mavx512vnni", "-mamx-tile", "-mamx-int8"),
    },
    "aarch64": {"neon": (), "dotprod": ("-march=armv8.2-a+dotprod",)},
}
_OPTIONAL = {"amx"}  # not known to compilers before 2021; library.c does without them
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}
_NO_OPENMP = (
    "OpenMP's libgomp.so.1 is not installed (Debian, Ubuntu: apt install libgomp1; Fedora: dnf "
    "install libgomp)"
)
_TIMEOUT = 120  # seconds, for one call of the compiler

_log = logging.getLogger(__name__)


class NativeBuildError(Exception):
    """Why there is no library, in words for a user."""


@lru_cache
def load(sources: Path) -> ctypes.CDLL | None:
    """Return the library of a folder of C sources; None where it is missing or forbidden.

    `ELMORE_NATIVE=0` in the environment forbids it.
    """
    try:
        return _load(sources)
    except NativeBuildError as error:
        level = logging.INFO if os.environ.get(FORBID) == "0" else logging.WARNING
        _log.log(level, "the native library is not used: %s; %s", error, SLOWER)
        return None


def why_missing(sources: Path) -> str | None:
    """Return why the library is missing, in words for a user, or None where it is there."""
    if load(sources) is not None:
        return None
    try:
        _load(sources)
    except NativeBuildError as error:
        return str(error)
    return None


def compile_library(sources: Path, destination: Path, *, threads: bool = True) -> None:
    """Compile library.c, and kernels.c once for each instruction set, into one library.

    Args:
        sources: Folder of C sources.
        destination: The library to write.
        threads: Whether it runs on OpenMP threads.

    Raises:
        NativeBuildError: There is no compiler, no kernels for this architecture, or it failed.
    """
    compiler = _compiler()
    compile_flags, link_flags = (
        [flag for flag in flags if threads or flag != "-fopenmp"] for flags in (_FLAGS, _LINK)
    )
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder) / "library.o"]
        _run([compiler, *compile_flags, "-c", str(sources / "library.c"), "-o", str(objects[0])])
        for name, flags in _instruction_sets().items():
            compiled = Path(folder) / f"{name}.o"
            target = ["-c", str(sources / "kernels.c"), "-o", str(compiled)]
            try:
                _run([compiler, *compile_flags, *flags, f"-DISA=elmore_{name}", *target])
            except NativeBuildError as error:
                if name not in _OPTIONAL:
                    raise
                _log.info("the native library has no kernels for %s: %s", name, error)
            else:
                objects.append(compiled)
        _run([compiler, *link_flags, *map(str, objects), "-o", str(destination), "-lm"])


def _load(sources: Path) -> ctypes.CDLL:
    if os.environ.get(FORBID) == "0":
        raise NativeBuildError(f"{FORBID}=0 forbids it")
    try:
        library_path = sources / LIBRARY if (sources / LIBRARY).is_file() else _cached(sources)
    except OSError as error:
        raise NativeBuildError(f"it could not be built ({error})") from error
    try:
        return _open(library_path)
    except NativeBuildError as error:
        serial = sources / SERIAL
        if str(error) != _NO_OPENMP or not serial.is_file():
            raise
        library = _open(serial)
        _log.warning("the native library runs on one thread: %s", _NO_OPENMP)
        return library


def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        reason = _NO_OPENMP if "libgomp" in str(error) else f"it cannot be loaded ({error})"
        raise NativeBuildError(reason) from error


def _cached(sources: Path) -> Path:
    """Return the library in the cache; build it where it is missing or damaged.

    Its name ends with the digest of its bytes, so a damaged file is never loaded.
    """
    from elmore import cache

    compiler = _compiler()
    version = _run([compiler, "--version"])
    texts = [path.read_bytes() for path in sorted(sources.glob("*.[ch]"))]
    settings = map(str.encode, (platform.machine(), *_FLAGS, *_LINK, repr(_instruction_sets())))
    digest = _digest(b"\0".join([*texts, version, *settings]))
    folder = cache.cache_dir() / "native"
    damaged = []
    for path in sorted(folder.glob(f"elmore-{digest}-*.so")):
        if _is_intact(path):
            return path
        damaged.append(path)
    for path in damaged:
        _log.warning("%s is damaged, so the native library is built again", path)
    folder.mkdir(parents=True, exist_ok=True)
    _log.warning("building the native library with %s; it takes some seconds, once", compiler)
    with tempfile.TemporaryDirectory(dir=folder) as tmp:
        built = Path(tmp) / LIBRARY
        compile_library(sources, built)
        path = folder / f"elmore-{digest}-{_digest(built.read_bytes())}.so"
        # What has this name is replaced at once: another process may be loading it.
        for other in damaged:
            if other != path or other.is_dir():
                _remove(other)
        built.replace(path)
    return path


def _compiler() -> str:
    name = os.environ.get("CC") or "cc"
    compiler = shutil.which(name)
    if compiler is None:
        raise NativeBuildError(f"there is no C compiler {name!r} here")
    return compiler


def _instruction_sets() -> dict[str, tuple[str, ...]]:
    machine = platform.machine().lower()
    sets = _INSTRUCTION_SETS.get(_ALIASES.get(machine, machine))
    if sets is None:
        raise NativeBuildError(f"it has no kernels for {machine}")
    return sets


def _run(command: list[str]) -> bytes:
    try:
        return subprocess.run(  # noqa: S603 -- the compiler of whoever runs this
            command, capture_output=True, check=True, timeout=_TIMEOUT
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise NativeBuildError(f"it could not be built ({error})") from error


def _is_intact(path: Path) -> bool:
    """Return whether the name of a built file ends with the digest of its bytes."""
    try:
        return path.stem.endswith(f"-{_digest(path.read_bytes())}")
    except OSError:  # a folder, a link to nothing, or a file that may not be read
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]
