"""Compile the native library to WebAssembly: python -m elmore.browser.compile (`make wasm`).

The result, elmore.wasm, is part of the package, because a compiler that has WebAssembly as a target
is rare and large: ziglang, which this needs, is a hundred times the size of elmore.wasm. The file
ends with the digest of what it was compiled from, so a test notices when the sources have changed.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from elmore.model.native import SOURCES

WASM = Path(__file__).with_name("elmore.wasm")
# As for other instruction sets (native_build.py), without threads: no fused multiply-add but the
# written ones. 1 MB of stack: a panel of sums is larger than the 64 KB that are usual.
FLAGS = (
    *("-target", "wasm32-wasi", "-mexec-model=reactor", "-msimd128", "-DISA=elmore_simd128"),
    *("-O3", "-std=c11", "-fopenmp-simd", "-fvisibility=hidden", "-s"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *("-Wl,--export-dynamic", "-Wl,--export=aligned_alloc", "-Wl,--export=free"),
    "-Wl,-z,stack-size=1048576",
)
_SECTION = b"sources"  # the name of the custom section at the end of the file


def compile_wasm(destination: Path) -> None:
    """Compile the library, and append the digest of its sources.

    Raises:
        subprocess.CalledProcessError: The compiler failed, or ziglang is not installed.
    """
    files = [str(SOURCES / name) for name in ("kernels.c", "library.c")]
    command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, *files, "-o", str(destination)]
    subprocess.run(command, check=True)  # noqa: S603 -- the compiler of whoever runs this
    content = len(_SECTION).to_bytes(1, "little") + _SECTION + source_digest()
    section = b"\0" + len(content).to_bytes(1, "little") + content
    with destination.open("ab") as file:
        file.write(section)


def source_digest() -> bytes:
    """Return the sha256 of the sources and the flags."""
    texts = [path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]"))]
    return hashlib.sha256(b"\0".join([*texts, *map(str.encode, FLAGS)])).digest()


if __name__ == "__main__":
    compile_wasm(WASM)
