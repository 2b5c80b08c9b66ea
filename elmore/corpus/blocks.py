"""Text files cut into blocks, the pieces of work of `elmore prepare`.

A document ends at a blank line, at the end of its file, and, in a table, with its row. Where a
block ends is a matter of the text alone, so that every run cuts alike, however many workers it has.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from elmore.corpus.options import Options
from elmore.errors import DataError
from elmore.text.files import STDIN, Lines, expand
from elmore.text.sentences import SURROGATE

MAX_CHARACTERS = 2 << 20
"""A block ends with the document that fills it, and in a document at twice the size."""
_TABLES = {".jsonl", ".parquet"}


class Run(NamedTuple):
    """Lines of the same kind."""

    split: str
    tokenized: bool
    text: bytes


class Block(NamedTuple):
    """Some documents, or a piece of a long one."""

    number: int
    where: str
    """Where its first line stands."""
    num_lines: int
    runs: tuple[Run, ...]

    def digest(self) -> str:
        """Know the text again."""
        digest = hashlib.sha256()
        for run in self.runs:
            digest.update(f"{run.split} {run.tokenized} {len(run.text)}\n".encode())
            digest.update(run.text)
        return digest.hexdigest()


class Line(NamedTuple):
    """A line of text, or a row of a table, and how it stands in the whole."""

    name: str
    number: int
    text: str
    tokenized: bool
    """Whether it is a sentence whose words stand between spaces."""
    opens: bool
    """Whether a document starts with it."""
    valid: bool
    """Whether it is of the validation files."""


class Text:
    """The training files and the validation files, opened one after another."""

    def __init__(self, names: Sequence[str], valid: Sequence[str], options: Options) -> None:
        self._options = options
        self.train, self.valid = expand(names), expand(valid)
        for name in self.valid:
            if os.path.realpath(name) in map(os.path.realpath, self.train):
                raise DataError(f"{name} is given as training text and as --valid; choose one")
        self._lines = [
            Lines([name], errors=options.errors, column=options.column)
            for name in (*self.train, *self.valid)
        ]
        self._sizes = [_size(name) for name in (*self.train, *self.valid)]
        self._now = 0

    @property
    def size(self) -> int | None:
        """How many bytes the files hold; None where nobody knows."""
        return None if None in self._sizes else sum(size or 0 for size in self._sizes)

    @property
    def fraction(self) -> float | None:
        """How much of the bytes has been read, 0 to 1; None where nobody knows."""
        here = self._lines[self._now].fraction
        if not self.size:
            return None
        done = sum(size or 0 for size in self._sizes[: self._now])
        return (done + (here or 0.0) * (self._sizes[self._now] or 0)) / self.size

    def __iter__(self) -> Iterator[Line]:
        for now, lines in enumerate(self._lines):
            self._now = now
            (name,) = lines.names
            read = self._rows if set(Path(name).suffixes[-2:]) & _TABLES else self._plain
            yield from read(name, lines, now >= len(self.train))

    def _plain(self, name: str, lines: Lines, valid: bool) -> Iterator[Line]:
        opens = True
        for number, text in enumerate(lines, start=1):
            assert isinstance(text, str)
            if not text or text.isspace():
                opens = True
            else:
                yield Line(name, number, text, self._options.tokenized, opens, valid)
                opens = False

    def _rows(self, name: str, lines: Lines, valid: bool) -> Iterator[Line]:
        for number, item in enumerate(lines, start=1):
            tokenized = self._options.tokenized or not isinstance(item, str)
            # Whitespace in a token ends it, so that a word is the same in every format.
            text = item if isinstance(item, str) else " ".join(chain(*map(str.split, item)))
            if half := SURROGATE.search(text):  # JSON can say what UTF-8 cannot
                if self._options.errors == "strict":
                    raise DataError(
                        f"{name}: line {number} is not Unicode: half a character "
                        f"({half[0]!r}); pass --errors replace to go on"
                    )
                text = SURROGATE.sub("\ufffd", text)
            if text and not text.isspace():
                yield Line(name, number, text, tokenized, True, valid)


def describe(names: Sequence[str]) -> list[list[str | int | None]]:
    """Say what files are read: the name of each without its place, and its size."""
    return [[Path(name).name, _size(name)] for name in names]


def _size(name: str) -> int | None:
    return None if name == STDIN else Path(name).stat().st_size


def cut(text: Text, valid_share: float) -> Iterator[Block]:
    """Give the blocks; a share of the documents is set aside for validation."""
    number = num_documents = 0
    split = "train"
    block = _Block(number)
    for line in text:
        if block.size >= (MAX_CHARACTERS if line.opens else 2 * MAX_CHARACTERS):
            yield block.close()
            number += 1
            block = _Block(number)
        if line.opens:
            split = "valid" if line.valid or _drawn(num_documents, line, valid_share) else "train"
            num_documents += 1
        block.add(line, split)
    if block.size:
        yield block.close()


def _drawn(number: int, line: Line, share: float) -> bool:
    """Draw a document by chance that is the same in every run: its number and first line."""
    if not share:
        return False
    first = f"{number}\n{line.text}".encode()
    return int.from_bytes(hashlib.blake2b(first, digest_size=8).digest()) < share * 2**64


class _Block:
    """A block being filled."""

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
        if line.opens and lines:
            lines.append("")  # a blank line ends a sentence, whatever
        lines.append(line.text)
        self._where = self._where or f"{line.name} line {line.number}"
        self._num_lines += 1
        self.size += len(line.text) + 1

    def close(self) -> Block:
        runs = (Run(*kind, "\n".join(lines).encode()) for kind, lines in self._runs)
        return Block(self._number, self._where, self._num_lines, tuple(runs))
