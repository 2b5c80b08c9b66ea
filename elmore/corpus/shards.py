"""A corpus on disk: a memory-mapped stream of word types, with the words and their counts.

    0 w1 ... wn 0 w1 ... wm 0 ...

One number per word, and one boundary before each sentence. Type 0 is `<S>` and type 1 `</S>`; the
words follow by decreasing count. Only a boundary is 0: in forward order it starts a sentence as an
input and ends one as a target, in backward order the reverse, so that both directions are shifts of
the same array. The position after the last token also counts as a boundary.

The folder contains

    index.json            the contents, size and sha256 of each file, and the provenance
    types.utf8            the words, concatenated; types.offsets.npy: where each begins
    counts.npy            counts of the types in the training text (int64)
    vocabulary.txt        the words of the softmax
    train-00000.tokens.npy, train-00000.sentences.npy ...   the stream (uint32), and the positions
                          of its sentence starts (int64); `valid-...` likewise
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int, Int64, Shaped

from elmore import config, npy, strict_json
from elmore.corpus import index as index_file
from elmore.corpus.type_table import TypeTable
from elmore.errors import DataError
from elmore.text.vocabulary import ELMO_MARKS, Vocabulary

FORMAT = 2  # 1: other names of options in the provenance
INDEX, VOCABULARY, COUNTS = "index.json", "vocabulary.txt", "counts.npy"
TYPES, OFFSETS = "types.utf8", "types.offsets.npy"
BOUNDARY = 0
"""The type before each sentence: `<S>`."""
END = 1
"""The type of `</S>`, which is never in the stream."""
MARKS = (ELMO_MARKS.begin, ELMO_MARKS.end)
"""The strings of the first two types."""

Split = Literal["train", "valid", "all"]
_CHUNK = 1 << 20


def open_corpus(path: Path | str) -> "Corpus":
    """Open a folder written by `elmore prepare`.

    Raises:
        DataError: A file is missing or truncated.
    """
    return Corpus(Path(path))


class Corpus:
    """A prepared corpus; arrays are memory-mapped on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = _read_index(path)
        """The content of `index.json`."""
        for name, file in self.index["files"].items():
            _check_size(path / name, file["bytes"])

    @cached_property
    def types(self) -> TypeTable:
        """The word types; 0 and 1 are `<S>` and `</S>`."""
        path = self.path / TYPES
        if not path.stat().st_size:
            raise DataError(f"{path}: is empty; prepare the corpus again")
        data = np.memmap(path, np.uint8, "r").view(np.ndarray)
        table = TypeTable(data, self._array(OFFSETS, "<i8"))
        if len(table) != self.index["num_types"] or not table.is_valid():
            raise DataError(f"{path}: damaged, or its offsets are; prepare the corpus again")
        return table

    @cached_property
    def counts(self) -> Int64[np.ndarray, " types"]:
        """Counts of the types in the training text; of 0 and 1, the number of sentences."""
        return self._array(COUNTS, "<i8")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the softmax, by decreasing count."""
        return Vocabulary.read(self.path / VOCABULARY)

    @cached_property
    def byte_counts(self) -> Int64[np.ndarray, "257"]:
        """Counts of the bytes in the words of the training text, then the number of words."""
        return np.array(self.index["byte_counts"], np.int64)

    @property
    def language(self) -> str:
        """The code of the language that `elmore prepare` was told, or nothing."""
        return str(self.index["provenance"].get("language") or "")

    def word_ids(self, vocabulary: Vocabulary | None = None) -> Int64[np.ndarray, " types"]:
        """Return the id of each type in a vocabulary, by default the corpus's own."""
        return word_ids(self.types, vocabulary or self.vocabulary)

    def split(self, name: Split) -> "TokenStream":
        """Return the stream of the training text, the validation text, or both."""
        splits = ("train", "valid") if name == "all" else (name,)
        shards = [shard for each in splits for shard in self.index["splits"][each]["shards"]]
        if not shards:
            raise DataError(
                f"{self.path} has no {name} text; prepare it with --valid FILE or --valid-fraction"
            )
        tokens = [self._array(shard["tokens"], "<u4") for shard in shards]
        sentences = [self._array(shard["sentences"], "<i8") for shard in shards]
        for shard, stream, starts in zip(shards, tokens, sentences, strict=True):
            if not _are_starts(starts, len(stream)):
                raise DataError(
                    f"{self.path / shard['sentences']}: damaged: not where the sentences of "
                    f"{shard['tokens']} start; prepare the corpus again"
                )
        return TokenStream(tokens, sentences, self.index["num_types"])

    def verify(self) -> None:
        """Check the sha256 of every file.

        Raises:
            DataError: A file differs.
        """
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            digests = list(pool.map(self._digest, self.index["files"]))
        for (name, file), digest in zip(self.index["files"].items(), digests, strict=True):
            if digest != file["sha256"]:
                raise DataError(
                    f"{self.path / name}: altered or damaged: its sha256 is not the one in "
                    f"{INDEX}; copy it again, or prepare the corpus again"
                )

    def _digest(self, name: str) -> str:
        with (self.path / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _array(self, name: str, kind: str) -> Shaped[np.ndarray, " n"]:
        array = npy.map_npy(self.path / name)
        if array.ndim != 1 or array.dtype != np.dtype(kind):
            raise DataError(
                f"{self.path / name}: expected a row of {kind}, found shape {array.shape} of "
                f"{array.dtype.str}; prepare the corpus again"
            )
        return array


class TokenStream:
    """The stream of one split, over all its shards."""

    def __init__(
        self,
        shards: list[Shaped[np.ndarray, " tokens"]],
        sentences: list[Int64[np.ndarray, " sentences"]],
        num_types: int,
    ) -> None:
        self._shards, self._sentences, self._num_types = shards, sentences, num_types
        self._offsets = np.cumsum([0, *map(len, shards)])
        self.num_tokens = int(self._offsets[-1])
        self.num_sentences = sum(map(len, sentences))
        self.num_words = self.num_tokens - self.num_sentences

    def take(self, positions: Int[np.ndarray, "..."]) -> Int64[np.ndarray, "..."]:
        """Return the types at positions of the stream; the end counts as a boundary."""
        words = np.full(positions.shape, BOUNDARY, np.int64)
        for number, here in self._by_shard(positions):
            words[here] = self._shards[number][positions[here] - self._offsets[number]]
        if words.max(initial=0) >= self._num_types:
            raise DataError(
                f"the corpus is damaged: its text holds word type {words.max()} of "
                f"{self._num_types}; prepare it again"
            )
        return words

    def _by_shard(
        self, positions: Int[np.ndarray, "..."]
    ) -> Iterator[tuple[int, Bool[np.ndarray, "..."]]]:
        """Yield each shard that has positions, and the mask of those positions."""
        if positions.size and not 0 <= positions.min() <= positions.max() <= self.num_tokens:
            raise IndexError(f"a position outside 0 to {self.num_tokens}")
        shards = np.searchsorted(self._offsets, positions, "right") - 1
        present = np.bincount(shards.ravel(), minlength=len(self._shards))
        for number in np.flatnonzero(present[: len(self._shards)]).tolist():
            yield number, shards == number

    @property
    def starts(self) -> Int64[np.ndarray, " sentences"]:
        """Positions of the boundaries, which start the sentences."""
        if len(self._sentences) == 1:
            return self._sentences[0]
        pairs = zip(self._sentences, self._offsets[:-1], strict=True)
        return np.concatenate([sentences + begin for sentences, begin in pairs])

    def first_starts(self, positions: Int[np.ndarray, " N"]) -> Int64[np.ndarray, " N"]:
        """Return the first sentence start at or after each position, or the end of the text."""
        starts = np.full(positions.shape, self.num_tokens, np.int64)
        for number, here in self._by_shard(positions):
            sentences, (begin, end) = self._sentences[number], self._offsets[number : number + 2]
            index = np.searchsorted(sentences, positions[here] - begin)
            # A shard has whole sentences: the last one is followed by the next shard.
            after = index == len(sentences)
            starts[here] = np.where(after, end, begin + sentences[np.where(after, 0, index)])
        return starts


def _are_starts(starts: Int64[np.ndarray, " sentences"], num_tokens: int) -> bool:
    """Return whether these are valid sentence starts of a stream."""
    before = -1
    for first in range(0, len(starts), _CHUNK):
        some = np.concatenate([[before], starts[first : first + _CHUNK]])
        if (np.diff(some) <= 0).any():
            return False
        before = int(some[-1])
    return before < num_tokens and (not num_tokens or (len(starts) > 0 and starts[0] == 0))


def word_ids(types: Iterable[str], vocabulary: Vocabulary) -> Int64[np.ndarray, " types"]:
    """Look up all types, of which the first two are marks and the others words of the text."""
    marks = vocabulary.ids(vocabulary.marks[: len(MARKS)])
    return np.concatenate([marks, vocabulary.ids_in_text(islice(types, len(MARKS), None))])


def index_sha256(index: dict[str, Any]) -> str:
    """Return the checksum of an index, without its own entry."""
    content = {key: value for key, value in index.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read_index(path: Path) -> dict[str, Any]:
    try:
        index = strict_json.loads((path / INDEX).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{path} holds no {INDEX}; run 'elmore prepare' first") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path / INDEX}: not a readable JSON file ({error})") from error
    if not isinstance(index, dict) or type(index.get("format")) is not int:
        raise DataError(f"{path / INDEX}: not the index of a corpus; run 'elmore prepare'")
    config.check_format(index, FORMAT, str(path / INDEX))
    if index.get("sha256") != index_sha256(index):
        raise DataError(f"{path / INDEX}: altered or damaged; prepare the corpus again")
    index_file.check_index(index, str(path / INDEX))
    return index


def _check_size(path: Path, size: int) -> None:
    try:
        actual = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: missing; copy it again, or prepare the corpus again") from error
    if actual != size:
        damage = "cut short" if actual < size else "altered"
        raise DataError(
            f"{path}: {damage}: it has {actual:,} bytes, {INDEX} says {size:,}; copy it again, or "
            "prepare the corpus again"
        )
