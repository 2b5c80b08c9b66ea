"""An index of uses as it is read: its columns memory-mapped, its sentences put together.

Shapes: N uses, S sentences, D width, M some of the uses.
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float16, Int

from elmore.errors import DataError
from elmore.probe import use_store
from elmore.probe.use_store import MANIFEST, SENTENCES, TYPES, WORDS, layer_file


class Columns:
    """The whole texts of an index, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = use_store.read(folder).done
        if not self.manifest.texts:
            raise DataError(
                f"{folder}: begun and not finished; the command that began it goes on with it"
            )
        for name in self.manifest.columns:
            self._refuse_cut(folder / name, self.manifest.num_bytes(name))
        for name in (WORDS, SENTENCES, TYPES):  # small; gigabytes of vectors are not read for this
            if any(not is_sound for _, is_sound in use_store.checked(folder, self.manifest, name)):
                raise DataError(
                    f"{folder / name}: damaged: not what {MANIFEST} has the sha256 of; delete "
                    f"{folder} and build it again"
                )
        self.words: Int[np.ndarray, " N"] = self._mapped(WORDS, "<i4", ())
        self._sentences: Int[np.ndarray, "S 2"] = self._mapped(SENTENCES, "<i8", (2,))
        self.types = use_store.read_types(folder, self.manifest)
        self._refuse_misfit()

    def _refuse_misfit(self) -> None:
        """Refuse columns that do not fit together, whatever their checksums say."""
        num_uses, ends = self.manifest.num_uses, self._sentences[:, 0]
        misfits = {
            WORDS: len(self.words) != num_uses
            or self.words.min(initial=0) < 0
            or self.words.max(initial=-1) >= len(self.types),
            SENTENCES: len(ends) != self.manifest.num_sentences
            or (np.diff(ends, prepend=0) < 0).any()
            or ends.max(initial=0) != num_uses,
        }
        for layer in self.manifest.layers:
            size = 2 * self.manifest.width * num_uses
            misfits[layer_file(layer)] = self.manifest.num_bytes(layer_file(layer)) != size
        for name, is_misfit in misfits.items():
            if is_misfit:
                raise DataError(
                    f"{self.folder / name}: does not fit the other files of the index; delete "
                    f"{self.folder} and build it again"
                )

    @staticmethod
    def _refuse_cut(path: Path, expected: int) -> None:
        found = path.stat().st_size if path.is_file() else 0
        if found < expected:
            raise DataError(
                f"{path}: cut short: {found} bytes, expected {expected}; delete {path.parent} and "
                "build it again"
            )

    def _mapped(self, name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
        size = self.manifest.num_bytes(name) // (np.dtype(kind).itemsize * math.prod(shape))
        if not size:
            return np.zeros((0, *shape), kind)
        return np.memmap(self.folder / name, kind, mode="r", shape=(size, *shape))

    def vectors(self, layer: str) -> Float16[np.ndarray, "N D"]:
        """Map the vectors of a layer."""
        return self._mapped(layer_file(layer), "<f2", (self.manifest.width,))

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """The number of every word."""
        return {word: number for number, word in enumerate(self.types)}

    def sentence(self, number: int) -> "StoredSentence":
        """Give a sentence by its number."""
        end, line = self._sentences[number].tolist()
        start = int(self._sentences[number - 1, 0]) if number else 0
        return StoredSentence([self.types[word] for word in self.words[start:end]], start, line)

    def sentence_of(self, use: int) -> "StoredSentence":
        """Give the sentence that a use stands in."""
        return self.sentence(int(np.searchsorted(self._sentences[:, 0], use, side="right")))

    def rows_of(self, tokens: Sequence[str]) -> Int[np.ndarray, " M"]:
        """Give the uses in every sentence that reads exactly so."""
        ends = np.asarray(self._sentences[:, 0])
        starts = np.concatenate([[0], ends[:-1]])
        spelled = [self.numbers.get(token, -1) for token in tokens]
        alike = starts[ends - starts == len(tokens)]
        if -1 in spelled:
            alike = alike[:0]
        for offset, number in enumerate(spelled):
            alike = alike[self.words[alike + offset] == number]
        return (alike[:, None] + np.arange(len(tokens))).ravel()


class StoredSentence(NamedTuple):
    """A sentence of an index."""

    tokens: list[str]
    first: int
    """Which use its first word is."""
    line: int
