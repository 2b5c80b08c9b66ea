"""Read arrays from untrusted `.npy` and `.npz` files, and write `.npz` files that are complete.

numpy evaluates a header as Python, and allocates the size it declares. Here a header must have one
of the few forms of plain numbers, and its size is compared with that of the file before anything is
allocated or mapped. An `.npz` must be uncompressed, as `numpy.savez` writes it, so that no member
is larger than the file.
"""

import io
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np
from jaxtyping import Shaped

from elmore import atomic
from elmore.errors import DataError

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 1 << 16  # bytes
_MAX_AXES = 32
_MAX_NUMBERS = 1 << 60  # of an array: numpy counts its bytes in 63 bits
_ITEM = re.compile(
    r"""\s*['"](?:
        (?P<descr>descr)['"]\s*:\s*['"](?P<kind>[<>|=]?(?:b1|[iu][1248]|f[248]))['"]
      | (?P<order>fortran_order)['"]\s*:\s*(?P<fortran>True|False)
      | (?P<shape>shape)['"]\s*:\s*\((?P<sizes>[\s\d,L]*)\)
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_SIZE = re.compile(r"[0-9]{1,18}")
_ZIP_ERRORS = (  # of a damaged zip
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
    offset: int
    """Where the data starts."""

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(path: Path) -> Shaped[np.ndarray, "..."]:
    """Read the array of an `.npy` file into memory."""
    with _open(path) as file:
        header = _read_header(file, os.fstat(file.fileno()).st_size, str(path))
        numbers = np.fromfile(file, header.dtype, math.prod(header.shape))
    return numbers.reshape(header.shape, order=header.order)


def map_npy(path: Path) -> Shaped[np.ndarray, "..."]:
    """Memory-map the array of an `.npy` file."""
    with _open(path) as file:
        header = _read_header(file, os.fstat(file.fileno()).st_size, str(path))
        if not header.num_bytes:
            return np.zeros(header.shape, header.dtype)
        numbers = np.memmap(file, header.dtype, "r", header.offset, header.shape, header.order)
    return numbers.view(np.ndarray)


def write_npz(path: Path, arrays: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
    """Write an `.npz` file that is complete or absent; missing folders are made.

    Raises:
        DataError: The file cannot be written.
    """
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    with atomic.explain_write_errors(path, "free some space, or pass another name"):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, buffer.getvalue())


def read_npz(path: Path, names: Sequence[str]) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Read arrays of an `.npz` file completely, which also checks their checksums."""
    with _open(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return {name: _read_member(archive, f"{name}.npy", path) for name in names}
        except DataError:
            raise
        except _ZIP_ERRORS as error:
            raise DataError(f"{path}: not a readable .npz file ({error})") from error


def _read_member(archive: zipfile.ZipFile, name: str, path: Path) -> Shaped[np.ndarray, "..."]:
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
        raise ValueError(f"{name} is compressed or encrypted, expected an uncompressed member")
    if member.file_size > path.stat().st_size:
        raise ValueError(f"{name} claims to be larger than the file")
    with archive.open(member) as file:
        header = _read_header(file, member.file_size, f"{path}: {name}")
        data = file.read()
    numbers = np.frombuffer(data, header.dtype, math.prod(header.shape))
    return numbers.reshape(header.shape, order=header.order)


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _read_header(file: IO[bytes], size: int, where: str) -> _Header:
    try:
        header = _parse_header(file)
        if header.offset + header.num_bytes > size:
            raise ValueError(
                f"truncated: {size:,} bytes, and shape {header.shape} of {header.dtype} needs "
                f"{header.offset + header.num_bytes:,}"
            )
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"{where}: not a readable array ({error})") from error
    return header


def _parse_header(file: IO[bytes]) -> _Header:
    start = file.read(len(_MAGIC) + 2)
    if start[: len(_MAGIC)] != _MAGIC or len(start) < len(_MAGIC) + 2:
        raise ValueError("it does not start like an .npy file")
    width = {1: 2, 2: 4, 3: 4}.get(start[len(_MAGIC)])
    if width is None:
        raise ValueError(f"version {start[len(_MAGIC)]} of the .npy format is unknown")
    size = file.read(width)
    length = int.from_bytes(size, "little")
    text = file.read(min(length, _MAX_HEADER))
    if len(size) < width or len(text) < length:
        raise ValueError("its header is truncated")
    fields = _parse_fields(text.decode("latin-1"))
    numbers = [number.strip().removesuffix("L") for number in fields["sizes"].split(",")]
    sizes = numbers[:-1] if not numbers[-1] else numbers  # the last one is empty in (3,) and ()
    if len(sizes) > _MAX_AXES or not all(_SIZE.fullmatch(number) for number in sizes):
        raise ValueError(f"its header has the shape ({fields['sizes'][:40]})")
    shape = tuple(map(int, sizes))
    if (
        math.prod(max(1, size) for size in shape) >= _MAX_NUMBERS
    ):  # an axis of 0 would hide the others
        raise ValueError(f"its header has the shape {shape}, which is too large")
    return _Header(
        np.dtype(fields["kind"]),
        "F" if fields["fortran"] == "True" else "C",
        shape,
        len(start) + width + length,
    )


def _parse_fields(text: str) -> dict[str, str]:
    """Return dtype, order and shape of a header, each of which must occur once."""
    text = text.strip()
    is_table = text.startswith("{") and text.endswith("}")
    inside = text[1:-1].rstrip().removesuffix(",")
    fields: dict[str, str] = {}
    at = 0
    while is_table and at < len(inside):
        item = _ITEM.match(inside, at)
        new = {name: value for name, value in item.groupdict().items() if value} if item else {}
        if not new or new.keys() & fields.keys():
            break
        fields |= {"sizes": ""} | new if "shape" in new else new
        at = item.end() if item else at
    if at < len(inside) or not {"kind", "fortran", "sizes"} <= fields.keys():
        raise ValueError(f"its header is {text[:80]!r}, expected plain numbers")
    return fields
