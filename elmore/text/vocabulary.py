"""The words of a softmax or embedding table: one per line, the line number is the id.

Three of them are marks: the start of a sentence, its end, and unknown words.
"""

import gzip
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from elmore.errors import DataError


class Marks(NamedTuple):
    """The strings of the three special entries of a vocabulary."""

    begin: str
    end: str
    unknown: str


ELMO_MARKS = Marks("<S>", "</S>", "<UNK>")
MANY_LANGS_MARKS = Marks("<bos>", "<eos>", "<oov>")

_MAX_BYTES = 1 << 30  # uncompressed: a small .gz could fill the memory
_SKIPPED = "!!!MAXTERMID"  # not a word; in some published vocabularies


@dataclass(frozen=True)
class Vocabulary:
    """An ordered list of distinct words that contains its three marks."""

    words: tuple[str, ...]
    marks: Marks = ELMO_MARKS
    _number: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        number: dict[str, int] = {}
        for i, word in enumerate(self.words):
            first = number.setdefault(word, i)
            if first != i:
                raise DataError(
                    f"the vocabulary lists {word!r} twice, as word {first + 1} and {i + 1}"
                )
        for mark in self.marks:
            if mark not in number:
                raise DataError(
                    f"the vocabulary lacks {mark!r}; it must contain {', '.join(self.marks)}"
                )
        object.__setattr__(self, "_number", number)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._number

    def ids(self, words: Iterable[str]) -> Int[np.ndarray, " N"]:
        """Return the ids of words; unknown words get the id of that mark."""
        unknown = self._number[self.marks.unknown]
        return np.array([self._number.get(word, unknown) for word in words], dtype=np.int64)

    def ids_in_text(self, words: Iterable[str]) -> Int[np.ndarray, " N"]:
        """Return the ids of words of a text, where one that is spelled like a mark is unknown."""
        marks, unknown = set(self.marks), self.marks.unknown
        return self.ids(unknown if word in marks else word for word in words)

    def write(self, path: Path) -> None:
        """Write one word per line; `read` returns the same vocabulary."""
        path.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8", newline="\n")

    @classmethod
    def read(cls, path: Path, marks: Marks = ELMO_MARKS) -> "Vocabulary":
        """Read a vocabulary file, plain or `.gz`."""
        words = [word for word in _lines(path) if word != _SKIPPED]
        try:
            return cls(tuple(words), marks)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error


def _lines(path: Path) -> Sequence[str]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES >> 20} MB")
        text = data.decode("utf-8")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{path}: not a readable vocabulary ({error})") from error
    # Not splitlines(): a word may contain other characters that end a line in Unicode.
    lines = text.removeprefix("\ufeff").removesuffix("\n").split("\n") if text else []
    words = [line.strip(" \t\r") for line in lines]
    if "" in words:
        raise DataError(
            f"{path}: line {words.index('') + 1} is empty, expected a word on each line"
        )
    return words
