"""Arrays in `.npy` and `.npz` files, read without trusting what their headers say.

numpy evaluates a header as Python, and allocates what it promises. Here a header is matched
against the few forms that plain numbers need, and its size is compared with that of the file
before anything is allocated or mapped. An `.npz` must be stored without compression, as
`numpy.savez` does, so that no file is larger inside than outside.
"""

import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np
from jaxtyping import Shaped

from elmore.errors import DataError

_MAGIC = b"\x93NUMPY"
_LONGEST = 1 << 16  # bytes of a header
_MOST_AXES = 32
_LARGEST = 1 << 60  # numbers of an array: numpy counts its bytes in 63 bits
_ITEM = re.compile(
    r"""\s*['"](?:
        (?P<descr>descr)['"]\s*:\s*['"](?P<kind>[<>|=]?(?:b1|[iu][1248]|f[248]))['"]
      | (?P<order>fortran_order)['"]\s*:\s*(?P<fortran>True|False)
      | (?P<shape>shape)['"]\s*:\s*\((?P<sizes>[\s\d,L]*)\)
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_SIZE = re.compile(r"[0-9]{1,18}")
_DAMAGE = (  # of a zip
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)


class _Header(NamedTuple):
    dtype: np.dtype
    order: Literal["C", "F"]
    shape: tuple[int, ...]
    begin: int
    """Where the numbers start."""

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read(path: Path) -> Shaped[np.ndarray, "..."]:
    """Read the array of an `.npy` file into memory."""
    with _opened(path) as file:
        header = _checked_header(file, os.fstat(file.fileno()).st_size, str(path))
        numbers = np.fromfile(file, header.dtype, math.prod(header.shape))
    return numbers.reshape(header.shape, order=header.order)


def mapped(path: Path) -> Shaped[np.ndarray, "..."]:
    """Map the array of an `.npy` file: nothing of it is read before it is asked for."""
    with _opened(path) as file:
        header = _checked_header(file, os.fstat(file.fileno()).st_size, str(path))
        if not header.num_bytes:
            return np.zeros(header.shape, header.dtype)
        numbers = np.memmap(file, header.dtype, "r", header.begin, header.shape, header.order)
    return numbers.view(np.ndarray)


def read_archive(path: Path, names: Sequence[str]) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Read some arrays of an `.npz` file, each to its end, so that its checksum is compared."""
    with _opened(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return {name: _member(archive, f"{name}.npy", path) for name in names}
        except DataError:
            raise
        except _DAMAGE as error:
            raise DataError(f"{path}: not a readable .npz file ({error})") from error


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> Shaped[np.ndarray, "..."]:
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
        raise ValueError(f"{name} is compressed or encrypted, expected it as numpy.savez writes it")
    if member.file_size > path.stat().st_size:
        raise ValueError(f"{name} says that it is larger than the file")
    with archive.open(member) as file:
        header = _checked_header(file, member.file_size, f"{path}: {name}")
        data = file.read()
    numbers = np.frombuffer(data, header.dtype, math.prod(header.shape))
    return numbers.reshape(header.shape, order=header.order)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _checked_header(file: IO[bytes], size: int, where: str) -> _Header:
    try:
        header = _header(file)
        if header.begin + header.num_bytes > size:
            raise ValueError(
                f"cut short: {size:,} bytes, and shape {header.shape} of {header.dtype} needs "
                f"{header.begin + header.num_bytes:,}"
            )
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{where}: not a readable array ({error})") from error
    return header


def _header(file: IO[bytes]) -> _Header:
    start = file.read(len(_MAGIC) + 2)
    if start[: len(_MAGIC)] != _MAGIC or len(start) < len(_MAGIC) + 2:
        raise ValueError("it does not begin as an .npy file does")
    width = {1: 2, 2: 4, 3: 4}.get(start[len(_MAGIC)])
    if width is None:
        raise ValueError(f"version {start[len(_MAGIC)]} of the .npy format is not known")
    said = file.read(width)
    length = int.from_bytes(said, "little")
    text = file.read(min(length, _LONGEST))
    if len(said) < width or len(text) < length:
        raise ValueError("its header is cut short")
    found = _fields(text.decode("latin-1"))
    numbers = [number.strip().removesuffix("L") for number in found["sizes"].split(",")]
    sizes = numbers[:-1] if not numbers[-1] else numbers  # (3,) and () end so
    if len(sizes) > _MOST_AXES or not all(_SIZE.fullmatch(number) for number in sizes):
        raise ValueError(f"its header has the shape ({found['sizes'][:40]})")
    shape = tuple(map(int, sizes))
    if math.prod(max(1, size) for size in shape) >= _LARGEST:  # an axis of 0 hides the others
        raise ValueError(f"its header has the shape {shape}, which no array can have")
    return _Header(
        np.dtype(found["kind"]),
        "F" if found["fortran"] == "True" else "C",
        shape,
        len(start) + width + length,
    )


def _fields(text: str) -> dict[str, str]:
    """Give what a header says of kind, order and shape, each of them once."""
    text = text.strip()
    is_table = text.startswith("{") and text.endswith("}")
    inside = text[1:-1].rstrip().removesuffix(",")
    found: dict[str, str] = {}
    at = 0
    while is_table and at < len(inside):
        item = _ITEM.match(inside, at)
        said = {name: value for name, value in item.groupdict().items() if value} if item else {}
        if not said or said.keys() & found.keys():
            break
        found |= {"sizes": ""} | said if "shape" in said else said
        at = item.end() if item else at
    if at < len(inside) or not {"kind", "fortran", "sizes"} <= found.keys():
        raise ValueError(f"its header is {text[:80]!r}, expected plain numbers")
    return found
