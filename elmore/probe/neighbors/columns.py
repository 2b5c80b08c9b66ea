"""Read an index: columns are memory-mapped, sentences are rebuilt from them.

Shapes: N occurrences, S sentences, D width, M some of the occurrences.
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float16, Int

from elmore.errors import DataError
from elmore.probe.neighbors import storage
from elmore.probe.neighbors.storage import MANIFEST, SENTENCES, TYPES, WORDS, layer_file


class Columns:
    """The finished texts of an index, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = storage.read_manifest(folder).finished
        if not self.manifest.texts:
            raise DataError(f"{folder}: the build did not finish; run the same command to resume")
        for name in self.manifest.columns:
            self._check_size(folder / name, self.manifest.num_bytes(name))
        for name in (WORDS, SENTENCES, TYPES):  # small; hashing gigabytes of vectors takes too long
            if any(not intact for _, intact in storage.verify_column(folder, self.manifest, name)):
                raise DataError(
                    f"{folder / name}: damaged: it does not match its sha256 in {MANIFEST}; delete "
                    f"{folder} and build it again"
                )
        self.words: Int[np.ndarray, " N"] = self._map(WORDS, "<i4", ())
        self._sentences: Int[np.ndarray, "S 2"] = self._map(SENTENCES, "<i8", (2,))
        self.types = storage.read_types(folder, self.manifest)
        self._check_consistency()

    def _check_consistency(self) -> None:
        """Raise an error if columns contradict each other, whatever their checksums say."""
        size, ends = self.manifest.num_occurrences, self._sentences[:, 0]
        problems = {
            WORDS: len(self.words) != size
            or self.words.min(initial=0) < 0
            or self.words.max(initial=-1) >= len(self.types),
            SENTENCES: len(ends) != self.manifest.num_sentences
            or (np.diff(ends, prepend=0) < 0).any()
            or ends.max(initial=0) != size,
        }
        for name in map(layer_file, self.manifest.layers):
            problems[name] = self.manifest.num_bytes(name) != 2 * self.manifest.width * size
        for name, is_problem in problems.items():
            if is_problem:
                raise DataError(
                    f"{self.folder / name}: does not fit the other files of the index; delete "
                    f"{self.folder} and build it again"
                )

    @staticmethod
    def _check_size(path: Path, expected: int) -> None:
        size = path.stat().st_size if path.is_file() else 0
        if size < expected:
            raise DataError(
                f"{path}: truncated: {size} bytes, expected {expected}; delete {path.parent} and "
                "build it again"
            )

    def _map(self, name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        size = self.manifest.num_bytes(name) // (np.dtype(dtype).itemsize * math.prod(shape))
        if not size:
            return np.zeros((0, *shape), dtype)
        return np.memmap(self.folder / name, dtype, mode="r", shape=(size, *shape))

    def vectors(self, layer: str) -> Float16[np.ndarray, "N D"]:
        """Map the vectors of a layer."""
        return self._map(layer_file(layer), "<f2", (self.manifest.width,))

    @functools.cached_property
    def word_ids(self) -> dict[str, int]:
        """The id of every word form: its line in words.jsonl."""
        return {word: number for number, word in enumerate(self.types)}

    def sentence_of(self, row: int) -> "StoredSentence":
        """Return the sentence that contains an occurrence."""
        number = int(np.searchsorted(self._sentences[:, 0], row, side="right"))
        end, line = self._sentences[number].tolist()
        start = int(self._sentences[number - 1, 0]) if number else 0
        return StoredSentence([self.types[word] for word in self.words[start:end]], start, line)

    def rows_of(self, tokens: Sequence[str]) -> Int[np.ndarray, " M"]:
        """Return the rows of every sentence that consists of exactly these tokens."""
        ends = np.asarray(self._sentences[:, 0])
        starts = np.concatenate([[0], ends[:-1]])
        word_ids = [self.word_ids.get(token, -1) for token in tokens]
        matches = starts[ends - starts == len(tokens)]
        if -1 in word_ids:
            matches = matches[:0]
        for offset, word_id in enumerate(word_ids):
            matches = matches[self.words[matches + offset] == word_id]
        return (matches[:, None] + np.arange(len(tokens))).ravel()


class StoredSentence(NamedTuple):
    """A sentence of an index."""

    tokens: list[str]
    first_row: int
    """Row of its first token."""
    line: int
