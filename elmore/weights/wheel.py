"""Write a wheel: a zip of files with their RECORD.

The same content gives the same bytes as long as zlib's version stays the same.

The zip is written here because `zipfile` offers no choice of zlib's strategy. Weights are noise to
it: the default finds short matches by chance, and encoding them takes more bits than the values
themselves. `Z_FILTERED` mostly encodes single bytes; int8 weights of 31 levels become 10 % smaller.
"""

import base64
import hashlib
import io
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from elmore.errors import WeightsError

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_VERSION, _UTF8, _DEFLATE = 20, 0x800, 8
_TIME, _DATE = 0, 0x21  # 1 January 1980, the first that a zip can store
_UNIX, _MODE = 3 << 8, 0o100644 << 16
_MAX_BYTES = 2**32 - 1
_CHUNK = 2**20
_MEMORY = 9  # the most of zlib: codes adapt less often, and so cost less


class _Member(NamedTuple):
    """A file in the zip."""

    name: bytes
    crc: int
    compressed: int
    size: int
    offset: int
    sha256: bytes


def write_wheel(file: BinaryIO, content: Mapping[str, bytes | Path], dist_info: str) -> None:
    """Write files into a wheel, and the RECORD of its `.dist-info` folder as the last.

    Args:
        file: An empty file, open for writing.
        content: What the files contain, by their path in the wheel; a Path is copied.
        dist_info: Name of the `.dist-info` folder.

    Raises:
        WeightsError: The wheel would exceed 4 GB.
    """
    members = [_write_member(file, name, data) for name, data in content.items()]
    rows = [f"{m.name.decode()},sha256={_digest(m.sha256)},{m.size}\n" for m in members]
    record = f"{dist_info}/RECORD"
    members.append(_write_member(file, record, f"{''.join(rows)}{record},,\n".encode()))
    start = file.tell()
    for member in members:
        file.write(_central_header(member))
    sizes = (len(members), len(members), file.tell() - start, start)
    file.write(_END.pack(b"PK\5\6", 0, 0, *sizes, 0))


def _write_member(file: BinaryIO, name: str, data: bytes | Path) -> _Member:
    """Compress a file to the end of the zip, then write its header, which holds its sizes."""
    offset = file.tell()
    encoded = name.encode()
    file.seek(offset + _LOCAL.size + len(encoded))
    is_weights = name.endswith(".safetensors")
    strategy = zlib.Z_FILTERED if is_weights else zlib.Z_DEFAULT_STRATEGY
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, _MEMORY, strategy)
    crc, size, digest = 0, 0, hashlib.sha256()
    for chunk in _chunks(data):
        crc, size = zlib.crc32(chunk, crc), size + len(chunk)
        digest.update(chunk)
        file.write(compressor.compress(chunk))
    file.write(compressor.flush())
    end = file.tell()
    if max(end, size) > _MAX_BYTES:
        raise WeightsError(
            f"{name}: a wheel is limited to 4 GB; store the model as float16 or int8"
        )
    compressed = end - offset - _LOCAL.size - len(encoded)
    member = _Member(encoded, crc, compressed, size, offset, digest.digest())
    file.seek(offset)
    fields = (_VERSION, _UTF8, _DEFLATE, _TIME, _DATE, crc, compressed, size, len(encoded), 0)
    file.write(_LOCAL.pack(b"PK\3\4", *fields) + encoded)
    file.seek(end)
    return member


def _central_header(member: _Member) -> bytes:
    name, crc, compressed, size, offset, _ = member
    fields = (_UNIX | _VERSION, _VERSION, _UTF8, _DEFLATE, _TIME, _DATE, crc, compressed, size)
    return _CENTRAL.pack(b"PK\1\2", *fields, len(name), 0, 0, 0, 0, _MODE, offset) + name


def _chunks(data: bytes | Path) -> Iterator[bytes]:
    with io.BytesIO(data) if isinstance(data, bytes) else data.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _digest(sha256: bytes) -> str:
    return base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()
