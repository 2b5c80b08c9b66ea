"""The word types of a corpus: strings in one memory-mapped file."""

import codecs
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from jaxtyping import Int64, UInt8

_CHUNK = 1 << 16


class TypeTable(Sequence[str]):
    """A list of strings in a memory-mapped file; millions of them take no memory."""

    def __init__(
        self, data: UInt8[np.ndarray, " bytes"], offsets: Int64[np.ndarray, " types+1"]
    ) -> None:
        self.data, self.offsets = data, offsets

    def is_valid(self) -> bool:
        """Return whether the offsets cover the data, and the data is UTF-8."""
        ends = self.offsets
        if not len(ends) or ends[0] != 0 or ends[-1] != len(self.data) or (np.diff(ends) < 0).any():
            return False
        begins = ends[:-1][np.diff(ends) > 0]
        if (self.data[begins] & 0xC0 == 0x80).any():  # inside a character
            return False
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for first in range(0, len(self.data), _CHUNK):
                decoder.decode(self.data[first : first + _CHUNK].tobytes())
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
        return True

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(f"word type {number} of {len(self)}")
        begin, end = self.offsets[number % len(self) :][:2]
        return self.data[begin:end].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _CHUNK):
            ends = self.offsets[first : first + _CHUNK + 1].tolist()
            data = self.data[ends[0] : ends[-1]].tobytes()
            for begin, end in pairwise(ends):
                yield data[begin - ends[0] : end - ends[0]].decode("utf-8")
