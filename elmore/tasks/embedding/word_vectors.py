"""Pretrained word vectors: GloVe, word2vec, fastText.

Formats that are read:

- text (`.txt`, `.vec`, compressed or not): a word and its numbers per line, with or without a first
  line that gives the number of words and the width;
- word2vec's binary format (`.bin`, `.bin.gz`): that first line, then for each word its bytes, a
  space and its numbers in float32;
- a matrix `X.npy` (`X.f16.npy`) with its words, one per line in the same order, in `X.words.txt`;
- `vectors.safetensors`, the copy inside a trained task: the matrix (V, D) and, as the bytes of a
  JSON list, the word of each row, or null for a row that is never looked up because its word
  occurred before. It holds the same vectors, to the bit.

Shapes: V words, D width, T tokens.
"""

import gzip
import io
import json
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, takewhile
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from elmore import npy, strict_json
from elmore.errors import DataError, WeightsError
from elmore.numbers import parse_uint
from elmore.text.files import Lines, expand_patterns

UNKNOWN = -1
COPY_NAME = "vectors.safetensors"

_FASTTEXT_MAGIC = (793712314).to_bytes(4, "little")  # first bytes of a fastText model
_MAX_WORD_BYTES = 10_000


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors. A word that is unknown as written is looked up in lower case."""

    words: dict[str, int]
    """The row of each word."""
    matrix: Float[np.ndarray, "V D"]

    @property
    def dim(self) -> int:
        """D: the width of a vector."""
        return self.matrix.shape[1]

    def ids(self, tokens: Sequence[str]) -> Int[np.ndarray, " T"]:
        """Return the row of each token, or UNKNOWN."""
        words, unknown = self.words, repeat(UNKNOWN)
        ids = np.fromiter(map(words.get, tokens, unknown), np.int64, len(tokens))
        missing = (ids == UNKNOWN).nonzero()[0]
        lower = [tokens[i].lower() for i in missing.tolist()]
        ids[missing] = np.fromiter(map(words.get, lower, unknown), np.int64, len(lower))
        return ids

    def lookup(self, tokens: Sequence[str]) -> Float[np.ndarray, "T D"]:
        """Return the vector of each token, zeros for unknown ones."""
        ids = self.ids(tokens)
        vectors = np.zeros((len(tokens), self.dim), dtype=np.float32)
        vectors[ids != UNKNOWN] = self.matrix[ids[ids != UNKNOWN]]
        return vectors


def save_copy(vectors: WordVectors, path: Path) -> None:
    """Write word vectors to `vectors.safetensors`."""
    words: list[str | None] = [None] * len(vectors.matrix)
    for word, row in vectors.words.items():
        words[row] = word
    encoded = np.frombuffer(json.dumps(words, ensure_ascii=False).encode(), dtype=np.uint8)
    matrix = np.ascontiguousarray(vectors.matrix, dtype=np.float32)
    save_file({"matrix": matrix, "words": encoded}, path)


def load_copy(path: Path) -> WordVectors:
    """Read word vectors that `save_copy` wrote."""
    try:
        tensors = load_file(path)
        matrix = tensors["matrix"]
        words = strict_json.loads(tensors["words"].tobytes().decode())
        fits = matrix.ndim == 2 and matrix.dtype == np.float32 and len(words) == len(matrix)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{path}: not readable word vectors ({error})") from error
    if not fits or not isinstance(words, list) or not np.isfinite(matrix).all():
        raise WeightsError(
            f"{path}: expected a finite float32 matrix and a word for each of its rows"
        )
    rows = {word: row for row, word in enumerate(words) if isinstance(word, str)}
    return WordVectors(rows, matrix)


def read_word_vectors(path: str | Path) -> WordVectors:
    """Read a file of word vectors; if a word occurs twice, its first vector counts.

    Raises:
        DataError: the file is missing, damaged or in none of the formats.
    """
    name, *more = expand_patterns([str(path)])
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
            f"{name}: the vector of {words[wrong[0]]!r} has an element that is not a finite number "
            "in float32"
        )
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(word, row)
    return WordVectors(rows, matrix)


def _read_matrix(name: str) -> tuple[list[str], Float[np.ndarray, "V D"]]:
    path = Path(name)
    matrix = npy.read_npy(path)
    if matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise DataError(
            f"{path}: expected a matrix of floats, one row per word, found shape {matrix.shape} of "
            f"{matrix.dtype}"
        )
    beside = path.with_name(path.name.removesuffix(".npy").removesuffix(".f16") + ".words.txt")
    if not beside.exists():
        raise DataError(f"{path}: its words are missing; expected them in {beside}, one per line")
    words = list(_strings(str(beside)))
    if len(words) != len(matrix):
        raise DataError(
            f"{beside}: {len(words)} words for the {len(matrix)} rows of {path.name}; "
            "do the two files belong together?"
        )
    with np.errstate(over="ignore"):  # the caller refuses what is infinite
        return words, matrix.astype(np.float32, copy=False)


def _read_text(name: str) -> tuple[list[str], Float[np.ndarray, "V D"]]:
    lines = enumerate(_strings(name), start=1)
    first = next(lines, None)
    if first is None:
        raise DataError(f"{name}: empty; expected a word and its numbers per line")
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
            f"{name}: line 1 announces {header[0]} words, found {len(words)}; is it truncated?"
        )
    return words, np.frombuffer(numbers, dtype=np.float32).reshape(-1, dim)


def _read_binary(name: str) -> tuple[list[str], Float[np.ndarray, "V D"]]:
    words: list[str] = []
    numbers = bytearray()
    try:
        with gzip.open(name) if name.endswith(".gz") else Path(name).open("rb") as file:
            start = file.readline(100)
            if start.startswith(_FASTTEXT_MAGIC):
                raise DataError(f"{name}: a fastText model, not word vectors; pass its .vec file")
            header = _header(start.decode("ascii", "replace"))
            if header is None or header[1] < 1:
                raise DataError(
                    f"{name}: expected a first line with the number of words and their width"
                )
            count, dim = header
            while len(words) < count and (word := _word(file)):
                words.append(word.decode())
                numbers += file.read(4 * dim)
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: word {len(words) + 1} is not UTF-8 ({error})") from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{name}: damaged or truncated ({error}); download it again") from error
    if len(words) != count or len(numbers) != 4 * dim * count:
        raise DataError(
            f"{name}: line 1 announces {count} words of width {dim}, and the file ends in word "
            f"{len(words)}; is it truncated?"
        )
    return words, np.frombuffer(numbers, dtype="<f4").reshape(-1, dim)


def _word(file: io.BufferedIOBase) -> bytes:
    """Read a word up to the next space, without the line break before it."""
    word = bytearray()
    while (byte := file.read(1)) and byte != b" " and len(word) <= _MAX_WORD_BYTES:
        word += byte
    return bytes(word).lstrip(b"\n") if byte == b" " else b""


def _width(line: str) -> int:
    """Count the numbers after a word; the word may contain spaces, and may be a number."""
    fields = line.rstrip(" ").split(" ")
    return sum(1 for _ in takewhile(_is_number, reversed(fields[1:])))


def _header(line: str) -> tuple[int, int] | None:
    """Return the number of words and the width, if the line has them."""
    fields = line.split()
    numbers = [number for number in map(parse_uint, fields) if number is not None]
    return (numbers[0], numbers[1]) if len(fields) == len(numbers) == 2 else None


def _entry(where: str, line: str, dim: int) -> tuple[str, list[float]]:
    """Split a line from the right, because a word may contain spaces."""
    word, *numbers = line.rstrip(" ").rsplit(" ", dim)
    last = word.rpartition(" ")[2]
    if len(numbers) != dim or (last != word and _is_number(last)):
        num_found = len(numbers) if len(numbers) != dim else "more"
        raise DataError(f"{where}: expected a word and {dim} numbers, found {num_found}")
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
