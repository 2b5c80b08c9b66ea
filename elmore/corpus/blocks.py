"""Split text files into blocks, the units of work of `elmore prepare`.

A document ends at a blank line, at the end of its file, and, in a table, with its row. Where a
block ends depends on the text only, so that any number of workers produces the same blocks.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from elmore.corpus.options import PrepareOptions
from elmore.errors import DataError
from elmore.text.files import STDIN, Lines, expand_patterns, table_suffix
from elmore.text.sentences import SURROGATE

MAX_CHARACTERS = 2 << 20
"""A block ends with the document that reaches this size, or inside a document at twice it."""


class LineRun(NamedTuple):
    """Consecutive lines of the same split and tokenization."""

    split: str
    tokenized: bool
    text: bytes


class Block(NamedTuple):
    """Some documents, or a part of a long one."""

    number: int
    where: str
    """File and number of its first line."""
    num_lines: int
    runs: tuple[LineRun, ...]

    def digest(self) -> str:
        """Return a checksum of the text."""
        digest = hashlib.sha256()
        for run in self.runs:
            digest.update(f"{run.split} {run.tokenized} {len(run.text)}\n".encode())
            digest.update(run.text)
        return digest.hexdigest()


class Line(NamedTuple):
    """A line of text, or a row of a table."""

    name: str
    number: int
    text: str
    tokenized: bool
    """Whether it is a sentence that is already split on spaces."""
    starts_document: bool
    valid: bool
    """Whether it comes from a validation file."""


class TextSource:
    """The lines of the training files and then of the validation files."""

    def __init__(self, names: Sequence[str], valid: Sequence[str], options: PrepareOptions) -> None:
        self._options = options
        self.train, self.valid = expand_patterns(names), expand_patterns(valid)
        for name in self.valid:
            if os.path.realpath(name) in map(os.path.realpath, self.train):
                raise DataError(f"{name} is both training text and --valid; choose one")
        self._lines = [
            Lines([name], errors=options.errors, column=options.column)
            for name in (*self.train, *self.valid)
        ]
        self._sizes = [_size(name) for name in (*self.train, *self.valid)]
        self._now = 0

    @property
    def size(self) -> int | None:
        """Size of the files in bytes; None if unknown (stdin)."""
        return None if None in self._sizes else sum(size or 0 for size in self._sizes)

    @property
    def fraction(self) -> float | None:
        """Fraction of the bytes that has been read; None if unknown."""
        here = self._lines[self._now].fraction
        if not self.size:
            return None
        done = sum(size or 0 for size in self._sizes[: self._now])
        return (done + (here or 0.0) * (self._sizes[self._now] or 0)) / self.size

    def __iter__(self) -> Iterator[Line]:
        for now, lines in enumerate(self._lines):
            self._now = now
            (name,) = lines.names
            read = self._rows if table_suffix(name) else self._plain
            yield from read(name, lines, now >= len(self.train))

    def _plain(self, name: str, lines: Lines, valid: bool) -> Iterator[Line]:
        starts_document = True
        for number, text in enumerate(lines, start=1):
            assert isinstance(text, str)
            if not text or text.isspace():
                starts_document = True
            else:
                yield Line(name, number, text, self._options.tokenized, starts_document, valid)
                starts_document = False

    def _rows(self, name: str, lines: Lines, valid: bool) -> Iterator[Line]:
        for number, item in enumerate(lines, start=1):
            tokenized = self._options.tokenized or not isinstance(item, str)
            # Split tokens that contain whitespace, so that words are the same in every format.
            text = item if isinstance(item, str) else " ".join(chain(*map(str.split, item)))
            if half := SURROGATE.search(text):  # JSON escapes can encode lone surrogates
                if self._options.errors == "strict":
                    raise DataError(
                        f"{name}: line {number} is not valid Unicode: lone surrogate "
                        f"{half[0]!r}; pass --errors replace to replace it"
                    )
                text = SURROGATE.sub("\ufffd", text)
            if text and not text.isspace():
                yield Line(name, number, text, tokenized, True, valid)


def describe_inputs(names: Sequence[str]) -> list[list[str | int | None]]:
    """Return the base name and size of each file."""
    return [[Path(name).name, _size(name)] for name in names]


def _size(name: str) -> int | None:
    return None if name == STDIN else Path(name).stat().st_size


def split_blocks(text: TextSource, valid_fraction: float) -> Iterator[Block]:
    """Yield the blocks; a fraction of the documents is assigned to validation."""
    number = num_documents = 0
    split = "train"
    block = _BlockBuilder(number)
    for line in text:
        if block.size >= (MAX_CHARACTERS if line.starts_document else 2 * MAX_CHARACTERS):
            yield block.close()
            number += 1
            block = _BlockBuilder(number)
        if line.starts_document:
            valid = line.valid or _is_validation(num_documents, line, valid_fraction)
            split = "valid" if valid else "train"
            num_documents += 1
        block.add(line, split)
    if block.size:
        yield block.close()


def _is_validation(number: int, line: Line, fraction: float) -> bool:
    """Decide by a hash of a document's number and first line, so that every run agrees."""
    if not fraction:
        return False
    first = f"{number}\n{line.text}".encode()
    return int.from_bytes(hashlib.blake2b(first, digest_size=8).digest()) < fraction * 2**64


class _BlockBuilder:
    """Collects the lines of a block."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._runs: list[tuple[tuple[str, bool], list[str]]] = []
        self._where = ""
        self._num_lines = self.size = 0

    def add(self, line: Line, split: str) -> None:
        kind = (split, line.tokenized)
        if not self._runs or self._runs[-1][0] != kind:
            self._runs.append((kind, []))
        lines = self._runs[-1][1]
        if line.starts_document and lines:
            lines.append("")  # a blank line always ends a sentence
        lines.append(line.text)
        self._where = self._where or f"{line.name} line {line.number}"
        self._num_lines += 1
        self.size += len(line.text) + 1

    def close(self) -> Block:
        runs = (LineRun(*kind, "\n".join(lines).encode()) for kind, lines in self._runs)
        return Block(self._number, self._where, self._num_lines, tuple(runs))
