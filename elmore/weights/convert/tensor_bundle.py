"""Read TensorFlow checkpoints without TensorFlow: names, shapes and numbers, no code.

`NAME.index` is a sorted table as LevelDB writes it: blocks of keys that say only how they differ
from the key before, and at the end of the file where the blocks are. A key is the name of a
variable; its value, a protocol buffer, says which part of `NAME.data-00000-of-00001` it is.
"""

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmore.errors import WeightsError

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER = 48  # two places of up to 20 bytes each, and the magic number
_LONGEST_NAME = 4096  # keys share beginnings: without a bound, a small file could fill the memory
_KINDS = {1: "<f4", 2: "<f8", 19: "<f2"}  # numbers of tensorflow.DataType

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # how a protocol buffer writes a field


class _Entry(NamedTuple):
    """The location of a tensor."""

    kind: int
    shape: tuple[int, ...]
    part: int
    begin: int
    size: int


@dataclass(frozen=True)
class Checkpoint:
    """The variables of a checkpoint as a `table.Source`; tensors are read on access."""

    path: Path
    """NAME.index."""
    entries: dict[str, _Entry]
    num_parts: int

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __getitem__(self, name: str) -> Tensor:
        entry = self.entries[name]
        if entry.kind not in _KINDS:
            raise WeightsError(
                f"{self.path}: {name} holds numbers of kind {entry.kind}, expected floating-point "
                "numbers"
            )
        kind = np.dtype(_KINDS[entry.kind])
        count = math.prod(entry.shape)
        with _explained(self.path):
            if entry.size != count * kind.itemsize:
                raise ValueError(f"{name} of shape {entry.shape} has {entry.size} bytes")
            path = self.files[1 + entry.part]
            if path.stat().st_size < entry.begin + entry.size:
                raise ValueError(f"{path.name} ends before {name} does")
            numbers = np.fromfile(path, kind, count, offset=entry.begin)
        with np.errstate(over="ignore"):  # the caller refuses what is infinite
            floats = numbers.astype(np.float32, copy=False)
        return torch.from_numpy(floats.reshape(entry.shape))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a shape without reading the tensor."""
        return self.entries[name].shape

    @property
    def files(self) -> list[Path]:
        """All files of the checkpoint, the index first."""
        names = [
            f"{self.path.stem}.data-{part:05}-of-{self.num_parts:05}"
            for part in range(self.num_parts)
        ]
        return [self.path, *map(self.path.with_name, names)]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, TypeError, IndexError, KeyError, struct.error) as error:
        raise WeightsError(
            f"{path}: not a readable TensorFlow checkpoint ({error}); are all its files here, and "
            "complete?"
        ) from error


def open_index(path: Path) -> Checkpoint:
    """Read NAME.index, without the tensors."""
    with _explained(path):
        rows = dict(_rows(path.read_bytes()))
        header = _fields(rows.pop(b""))
        if _number(header, 2) != 0:
            raise ValueError("its numbers are big-endian")
        num_parts = _number(header, 1)
        if not 1 <= num_parts < 10**5:
            raise ValueError(f"it has {num_parts} parts")
        entries = {key.decode(): _entry(key.decode(), value) for key, value in rows.items()}
        for name, entry in entries.items():
            if entry.part >= num_parts:
                raise ValueError(f"{name} is in part {entry.part} of {num_parts}")
        return Checkpoint(path, entries, num_parts)


def _entry(name: str, value: bytes) -> _Entry:
    fields = _fields(value)
    if 7 in fields:
        raise ValueError(f"{name} is cut into slices, which is not read here")
    sizes = [_fields(size) for size in _fields(_message(fields, 2)).get(2, ())]
    shape = tuple(_number(size, 1) for size in sizes)
    return _Entry(_number(fields, 1), shape, *(_number(fields, field) for field in (3, 4, 5)))


def _rows(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table, in order."""
    if not data.endswith(_MAGIC):
        raise ValueError("it does not end as an index does")
    at = len(data) - _FOOTER
    for _ in range(2):  # past the place of the block about blocks
        _, at = _varint(data, at)
    end = 0
    for _, handle in _block(data, *_block_handle(data, at)):
        begin, size = _block_handle(handle, 0)
        if begin < end:  # each block once, so that the work is bounded by the file
            raise ValueError("its blocks overlap")
        end = begin + size
        yield from _block(data, begin, size)


def _block(data: bytes, begin: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    block = data[begin : begin + size]
    if len(block) != size or data[begin + size] != 0:
        raise ValueError("a block is cut short or compressed")
    (num_restarts,) = struct.unpack_from("<I", block, size - 4)
    end = size - 4 * (1 + num_restarts)
    key, at = b"", 0
    while at < end:
        shared, at = _varint(block, at)
        rest, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or shared + rest > _LONGEST_NAME or at + rest + length > end:
            raise ValueError("a name does not fit into its block")
        key = key[:shared] + block[at : at + rest]
        at += rest + length
        yield key, block[at - length : at]


def _block_handle(data: bytes, at: int) -> tuple[int, int]:
    begin, at = _varint(data, at)
    return begin, _varint(data, at)[0]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint (7 bits per byte, lowest first); return it and its end."""
    value = 0
    for shift in range(0, 64, 7):
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise ValueError("a number has no end")


def _fields(message: bytes) -> dict[int, list]:
    """Parse a protocol buffer into the values of each field by its number."""
    fields: dict[int, list] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        length = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(tag & 7)
        if tag & 7 == _VARINT:
            value, at = _varint(message, at)
        else:
            if tag & 7 == _BYTES:
                length, at = _varint(message, at)
            if length is None or at + length > len(message):
                raise ValueError("a field cannot be read")
            value = message[at : at + length]
            at += length
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _number(fields: dict[int, list], field: int) -> int:
    """Return a number; 0 if it is not present."""
    value = fields.get(field, [0])[-1]
    if not isinstance(value, int):
        raise TypeError(f"field {field} is not a number")
    return value


def _message(fields: dict[int, list], field: int) -> bytes:
    value = fields.get(field, [b""])[-1]
    if not isinstance(value, bytes):
        raise TypeError(f"field {field} is not a message")
    return value
