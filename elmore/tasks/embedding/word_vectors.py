"""Ready-made vectors of words: GloVe, word2vec, fastText.

As text (`.txt`, `.vec`, packed or not), a word and its numbers a line, with or without a first line
that says how many words of what width; as word2vec's binary file (`.bin`, `.bin.gz`), where that
line stands and then, for each word, its bytes, a blank and its numbers in float32; or as a matrix
`X.npy` (`X.f16.npy`) with its words, one a line and in the same order, in `X.words.txt`.

Shapes: V words, D width, T tokens.
"""

import gzip
import io
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from elmore import npy
from elmore.errors import DataError
from elmore.numbers import whole_number
from elmore.text.files import Lines, expand

UNKNOWN = -1

_FASTTEXT = (793712314).to_bytes(4, "little")  # what a model of fastText opens with
_LONGEST = 10_000  # bytes of a word


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors. A word unknown as it is written is looked up in lower case."""

    words: dict[str, int]
    """The row of each word."""
    matrix: Float[np.ndarray, "V D"]

    @property
    def dim(self) -> int:
        """D: the width of a vector."""
        return self.matrix.shape[1]

    def ids(self, tokens: Sequence[str]) -> Int[np.ndarray, " T"]:
        """Give the row of each token, -1 where it has none."""
        words = self.words
        found = (words.get(token, words.get(token.lower(), UNKNOWN)) for token in tokens)
        return np.fromiter(found, dtype=np.int64, count=len(tokens))

    def lookup(self, tokens: Sequence[str]) -> Float[np.ndarray, "T D"]:
        """Give the vector of each token, zeros where it has none."""
        ids = self.ids(tokens)
        vectors = np.zeros((len(tokens), self.dim), dtype=np.float32)
        vectors[ids != UNKNOWN] = self.matrix[ids[ids != UNKNOWN]]
        return vectors


def read(path: str | Path) -> WordVectors:
    """Read the vectors of a file; of a word that comes twice, the first."""
    name, *more = expand([str(path)])
    if more:
        raise DataError(f"{path}: expected one file of vectors, found {len(more) + 1}")
    kinds = {".npy": _read_matrix, ".bin": _read_binary, ".bin.gz": _read_binary}
    reader = next((kinds[end] for end in kinds if name.endswith(end)), _read_text)
    words, matrix = reader(name)
    if not matrix.size:
        raise DataError(f"{name}: no word vector found")
    # The sum is not finite if an element is not, and needs no second matrix.
    with np.errstate(over="ignore", invalid="ignore"):
        wrong = np.flatnonzero(~np.isfinite(matrix.sum(axis=1, dtype=np.float64)))
    if len(wrong):
        raise DataError(
            f"{name}: the vector of {words[wrong[0]]!r} has an element that is no number"
        )
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(word, row)
    return WordVectors(rows, matrix)


def _read_matrix(name: str) -> tuple[list[str], Float[np.ndarray, "V D"]]:
    path = Path(name)
    matrix = npy.read(path)
    if matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise DataError(
            f"{path}: expected a matrix of floats, a row a word, found shape {matrix.shape} of "
            f"{matrix.dtype}"
        )
    beside = path.with_name(path.name.removesuffix(".npy").removesuffix(".f16") + ".words.txt")
    if not beside.exists():
        raise DataError(f"{path}: its words are missing; expected them in {beside}, one a line")
    words = list(_strings(str(beside)))
    if len(words) != len(matrix):
        raise DataError(
            f"{beside}: {len(words)} words for the {len(matrix)} rows of {path.name}; "
            "are the two of the same vectors?"
        )
    return words, matrix.astype(np.float32, copy=False)


def _read_text(name: str) -> tuple[list[str], Float[np.ndarray, "V D"]]:
    lines = enumerate(_strings(name), start=1)
    first = next(lines, None)
    if first is None:
        raise DataError(f"{name}: empty; expected a word and its numbers a line")
    header = _header(first[1])
    dim = header[1] if header else _width(first[1])
    if dim < 1:
        raise DataError(f"{name}:1: expected a word and its numbers, found {first[1][:40]!r}")
    words: list[str] = []
    numbers = array("f")
    for number, line in lines if header else chain([first], lines):
        word, vector = _entry(f"{name}:{number}", line, dim)
        words.append(word)
        numbers.extend(vector)
    if header and len(words) != header[0]:
        raise DataError(
            f"{name}: line 1 promises {header[0]} words, found {len(words)}; is it cut short?"
        )
    return words, np.frombuffer(numbers, dtype=np.float32).reshape(-1, dim)


def _read_binary(name: str) -> tuple[list[str], Float[np.ndarray, "V D"]]:
    words: list[str] = []
    numbers = bytearray()
    try:
        with gzip.open(name) if name.endswith(".gz") else Path(name).open("rb") as file:
            start = file.readline(100)
            if start.startswith(_FASTTEXT):
                raise DataError(
                    f"{name}: a model of fastText, not a file of vectors; take the .vec beside it"
                )
            header = _header(start.decode("ascii", "replace"))
            if header is None or header[1] < 1:
                raise DataError(f"{name}: expected the number of words and their width at first")
            count, dim = header
            while len(words) < count and (word := _word(file)):
                words.append(word.decode())
                numbers += file.read(4 * dim)
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: word {len(words) + 1} is not UTF-8 ({error})") from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{name}: damaged or cut short ({error}); get it again") from error
    if len(words) != count or len(numbers) != 4 * dim * count:
        raise DataError(
            f"{name}: {count} words of width {dim} were promised, and it ends in word "
            f"{len(words)}; is it cut short?"
        )
    return words, np.frombuffer(numbers, dtype="<f4").reshape(-1, dim)


def _word(file: io.BufferedIOBase) -> bytes:
    """Read up to the next blank; a line break before the word belongs to none."""
    found = bytearray()
    while (byte := file.read(1)) and byte != b" " and len(found) <= _LONGEST:
        found += byte
    return bytes(found).lstrip(b"\n") if byte == b" " else b""


def _width(line: str) -> int:
    """Count the numbers behind a word, which may hold blanks and may be a number."""
    fields = line.rstrip(" ").split(" ")
    return sum(1 for _ in takewhile(_is_number, reversed(fields[1:])))


def _header(line: str) -> tuple[int, int] | None:
    """Give the number of words and the width, where a file opens with them."""
    fields = line.split()
    numbers = [number for number in map(whole_number, fields) if number is not None]
    return (numbers[0], numbers[1]) if len(fields) == len(numbers) == 2 else None


def _entry(where: str, line: str, dim: int) -> tuple[str, list[float]]:
    """Split from the right: a word may hold blanks, a number may not."""
    word, *numbers = line.rstrip(" ").rsplit(" ", dim)
    last = word.rpartition(" ")[2]
    if len(numbers) != dim or (last != word and _is_number(last)):
        found = len(numbers) if len(numbers) != dim else "more"
        raise DataError(f"{where}: expected a word and {dim} numbers, found {found}")
    try:
        return word, [float(number) for number in numbers]
    except ValueError as error:
        raise DataError(f"{where}: in the vector of {word!r}, {error}") from error


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _strings(name: str) -> Iterator[str]:
    return map(str, Lines([name], column=None))
