"""Read texts from files: plain text by line, tables by row.

Tables are `.jsonl`, `.csv`, `.tsv` (without quotes) and `.parquet`. All but the last may be
compressed: `.gz`, `.xz`, `.bz2` or `.zst`.
"""

import bisect
import bz2
import codecs
import csv
import glob
import gzip
import io
import json
import logging
import lzma
import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from elmore import strict_json
from elmore.errors import DataError
from elmore.text.parquet_table import ParquetTable

STDIN = "-"
_MARK_EVERY = 0.001  # of the bytes: a thousand marks suffice for any text
_MAX_NAMED = 20  # columns in an error message
_log = logging.getLogger(__name__)
TABLES = (".jsonl", ".csv", ".tsv", ".parquet")
"""Endings of the names of tables, whose text is in one column."""
COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")
"""Endings of the names of compressed files that can be read."""


class TableRow(NamedTuple):
    """A text and the values of the other columns of its row, by name; none for plain text."""

    text: str | list[str]
    others: dict[str, Any]


def expand_patterns(names: Sequence[str]) -> list[str]:
    """Expand `*` and `?` in file names, and check that each file can be read."""
    paths: list[str] = []
    for name in names:
        plain = name == STDIN or Path(name).exists()
        matches = [] if plain else sorted(glob.glob(name, recursive=True))  # noqa: PTH207 -- absolute ones too
        for match in matches or [name]:
            if match != STDIN:
                _check_readable(Path(match))
            paths.append(match)
    return paths


def _check_readable(path: Path) -> None:
    if path.is_dir():
        raise DataError(f"{path}: expected a text file, found a folder")
    if path.is_fifo():  # opening it would look like a reader to its writer
        return
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def table_suffix(name: str) -> str:
    """Return the ending of a table's name, one of `TABLES` in lower case; of other files ""."""
    path = Path(name.lower())
    suffix = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    return suffix if suffix in TABLES else ""


class Lines:
    """Iterates over the texts of files, and tracks the progress."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        errors: Literal["strict", "replace"] = "strict",
        column: str | None = "text",
        encoding: str = "utf-8",
    ) -> None:
        """Open files; `column` is the text column of tables, None reads JSON lines as text."""
        self.names = expand_patterns(names)
        self.errors = errors
        self.column = column
        self.encoding = encoding
        self._total = sum(Path(name).stat().st_size for name in self.names if name != STDIN)
        self._done = 0
        self._raw: IO[bytes] | None = None
        self._marks = [(0, 0.0)]

    def fraction_after(self, num_texts: int) -> float | None:
        """Return the fraction of the bytes in the first texts; None if unknown.

        Texts are read long before they are processed, and compressed ones in large chunks. So this
        interpolates between the texts at which the position in the files was seen to move.
        """
        if self.fraction is None:
            return None
        at = bisect.bisect_right(self._marks, (num_texts, math.inf))
        first, done = self._marks[at - 1]
        if at == len(self._marks):
            return done
        last, more = self._marks[at]
        return done + (more - done) * (num_texts - first) / (last - first)

    def __iter__(self) -> Iterator[str | list[str]]:
        for row in self.rows(others=False):
            yield row.text

    def rows(self, *, others: bool = True) -> Iterator[TableRow]:
        """Yield the texts, with the other columns of their rows if wanted."""
        seen, number = 0.0, 0
        for number, row in enumerate(self._read_files(others)):
            if (here := self.fraction) is not None and here - seen >= _MARK_EVERY:
                self._marks.append((number, seen))  # the position before the text that moved it
                seen = here
            yield row
        self._marks.append((number + 1, 1.0))

    @property
    def fraction(self) -> float | None:
        """Fraction of the bytes that has been read; None if unknown."""
        if STDIN in self.names or not self._total:
            return None
        try:
            here = self._raw.tell() if self._raw is not None and not self._raw.closed else 0
        except OSError:  # a pipe has no position
            return None
        return min(1.0, (self._done + here) / self._total)

    def _read_files(self, others: bool) -> Iterator[TableRow]:
        for name in self.names:
            if name == STDIN:
                if sys.stdin is None:
                    raise DataError("standard input is closed; pass a file")
                for line in self._decode_lines(name, sys.stdin.buffer):
                    yield TableRow(line, {})
                continue
            with Path(name).open("rb") as raw:
                self._raw = raw
                yield from self._read_rows(name, raw, others)
            self._done += Path(name).stat().st_size

    def _read_rows(self, name: str, raw: IO[bytes], others: bool) -> Iterator[TableRow]:
        try:
            ending = table_suffix(name)
            if ending == ".parquet":
                if self.column is None:
                    raise DataError(f"{name}: expected lines of text, found a table")
                yield from self._read_parquet(name, raw, others)
                return
            lines = self._decode_lines(name, _decompress(name, raw))
            if self.column is None:
                ending = ""
            if ending == ".jsonl":
                for number, line in enumerate(lines, start=1):
                    if line and not line.isspace():
                        yield self._json_row(f"{name}: line {number}", line)
            elif ending in (".csv", ".tsv"):
                yield from self._read_delimited(name, lines, tabs=ending == ".tsv")
            else:
                for line in lines:
                    yield TableRow(line, {})
        except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
            raise DataError(f"{name}: damaged or truncated ({error}); download it again") from error

    def _decode_lines(self, name: str, file: IO[bytes]) -> Iterator[str]:
        is_utf8 = codecs.lookup(self.encoding).name == "utf-8"
        may_be_utf8 = not is_utf8
        for number, line in enumerate(file, start=1):
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                if is_utf8 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise DataError(
                        f"{name} is UTF-16, expected UTF-8; convert it: iconv -f UTF-16 -t UTF-8"
                    )
                line = line.removeprefix(codecs.BOM_UTF8)
            if may_be_utf8 and not line.isascii():
                may_be_utf8 = False  # the first such line decides
                self._warn_of_utf8(f"{name}: line {number}", line)
            try:
                yield line.decode(self.encoding, self.errors)
            except UnicodeDecodeError as error:
                coding = self.encoding.upper()
                raise DataError(
                    f"{name}: line {number} is not {coding} at its byte {error.start + 1} "
                    f"({line[error.start : error.start + 1]!r}); fix it, or, if the command has "
                    "the option, pass --errors replace or --set data.encoding=latin-1"
                ) from error

    def _warn_of_utf8(self, where: str, line: bytes) -> None:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return
        _log.warning(
            "%s is read as %s, but could be UTF-8: %r; if it is, leave out data.encoding",
            where,
            self.encoding,
            text[:40],
        )

    def _read_delimited(self, name: str, lines: Iterator[str], *, tabs: bool) -> Iterator[TableRow]:
        rows = parse_delimited(name, lines, tabs=tabs)
        header = next(rows)
        self._check_column(name, header)
        for fields in rows:
            others = dict(zip(header, fields, strict=True))
            yield TableRow(others.pop(str(self.column)), others)

    def _check_column(self, name: str, columns: Sequence[str]) -> None:
        if self.column not in columns:
            more = ", …" if len(columns) > _MAX_NAMED else ""
            found = ", ".join(columns[:_MAX_NAMED]) + more or "none"
            raise DataError(f"{name}: no column {self.column!r}; pass --column, one of {found}")

    def _json_row(self, where: str, line: str) -> TableRow:
        try:
            others = strict_json.loads(line)
        except ValueError as error:
            reason = str(error).partition(";")[0]  # without advice for programmers
            if isinstance(error, json.JSONDecodeError):  # whose text counts the lines of one line
                reason = f"{error.msg} at its character {error.pos + 1}"
            raise DataError(f"{where} is not JSON ({reason})") from error
        if not isinstance(others, dict):
            raise DataError(f"{where}: expected a JSON object, found {line.strip()[:40]!r}")
        self._check_column(where, [*others])
        return TableRow(_check_text(others.pop(str(self.column)), where), others)

    def _read_parquet(self, name: str, raw: IO[bytes], others: bool) -> Iterator[TableRow]:
        table = ParquetTable(name, raw)
        self._check_column(name, table.columns)
        rows = table.rows(str(self.column), others=others, errors=self.errors)
        for number, (value, rest) in enumerate(rows, start=1):
            if not isinstance(value, str):
                value = _check_text(value, f"{name}: row {number}")
            yield TableRow(value, rest)


def parse_delimited(name: str, lines: Iterator[str], *, tabs: bool) -> Iterator[list[str]]:
    """Yield the header of a .csv or, with `tabs`, a .tsv file, and its rows.

    Only fields of .csv may be quoted, and contain breaks. An empty line is a row only in a table
    of one column.

    Args:
        name: The file, for error messages.
        lines: Its lines.
        tabs: Whether tabs separate the fields, instead of commas.

    Raises:
        DataError: There is no header, it names a column twice, or a row does not fit it.
    """
    csv.field_size_limit(2**31 - 1)  # a field may be a whole document
    format_: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {}
    last = 0  # line on which the row before ended
    first = list(islice(lines, 1))
    reader = csv.reader((f"{line}\n" for line in chain(first, lines)), strict=True, **format_)
    try:
        header = next(reader, None)
        if not header:
            raise DataError(f"{name}: no header; the first line of a table names its columns")
        if header == first and not tabs:  # one field, which is not quoted
            _check_commas(name, header[0])
        for number, column in enumerate(header):
            if column in header[:number]:
                raise DataError(f"{name}: the header names {column!r} twice; rename one of them")
        yield header
        last = reader.line_num
        for fields in reader:
            last = reader.line_num
            fields = fields or ([""] if len(header) == 1 else [])
            if not fields:
                continue
            if len(fields) != len(header):
                advice = "" if tabs else "; quote fields that contain the separator"
                raise DataError(
                    f"{name}: line {reader.line_num} has {len(fields)} fields, the header has "
                    f"{len(header)}{advice}"
                )
            yield fields
    except csv.Error as error:
        raise DataError(
            f"{name}: {_explain(str(error), last + 1, reader.line_num, tabs)}"
        ) from error


def _check_commas(name: str, header: str) -> None:
    for mark, marks, advice in (
        (";", "semicolons", "save the table with commas, or quote the name of its one column"),
        ("\t", "tabs", "name the file .tsv"),
    ):
        if mark in header:
            raise DataError(
                f"{name}: line 1 has {marks} between its fields, expected commas; {advice}"
            )


def _explain(problem: str, first: int, last: int, tabs: bool) -> str:
    """Explain an error of `csv` in the row that begins on line `first`."""
    if problem == "unexpected end of data":
        return f"line {first}: a quote in this row is never closed"
    if problem.startswith("new-line character seen"):
        advice = "" if tabs else ", or quote the field"
        return (
            f"line {last} has a carriage return in a field without quotes; end each line with a "
            f"line feed{advice}"
        )
    return f"line {last}: {problem}"


def numbered_lines(path: str | Path, *, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """Yield `file:line`, for error messages, and the text of each line (not parsed as JSON)."""
    for name in expand_patterns([str(path)]):
        for number, line in enumerate(Lines([name], column=None, encoding=encoding), 1):
            yield f"{name}:{number}", str(line)


def _check_text(text: object, where: str) -> str | list[str]:
    """Return a text or a list of tokens; a missing one is an empty text."""
    if text is None:
        return ""
    if isinstance(text, str):
        return text
    if isinstance(text, list) and all(isinstance(word, str) for word in text):
        return text
    raise DataError(f"{where}: expected a text or a list of tokens, found {str(text)[:40]!r}")


def _decompress(name: str, raw: IO[bytes]) -> IO[bytes]:
    suffix = Path(name.lower()).suffix
    if suffix == ".zst":
        try:
            import zstandard
        except ImportError as error:
            raise DataError(f"{name}: .zst needs zstandard: pip install 'elmore[embed]'") from error
        return io.BufferedReader(_ZstdReader(raw, zstandard))
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    return openers[suffix](raw, "rb") if suffix in openers else raw


class _ZstdReader(io.RawIOBase):
    """Reads a .zst file; unlike zstandard's own reader it raises EOFError for a truncated one."""

    def __init__(self, raw: IO[bytes], zstandard: Any) -> None:  # noqa: ANN401 -- the package
        self._raw, self._zstandard = raw, zstandard
        self._frame: Any = None
        self._compressed = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 -- as io has it
        while not self._ready:
            self._compressed = self._compressed or self._raw.read(1 << 16)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("it ends inside a frame")
                return 0
            self._decompress()
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _decompress(self) -> None:
        self._frame = self._frame or self._zstandard.ZstdDecompressor().decompressobj()
        try:
            self._ready = self._frame.decompress(self._compressed)
        except self._zstandard.ZstdError as error:
            raise EOFError(str(error)) from error
        self._compressed = self._frame.unused_data if self._frame.eof else b""
        self._frame = None if self._frame.eof else self._frame
