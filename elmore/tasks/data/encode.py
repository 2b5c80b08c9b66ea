"""Sentences to the tensors of a batch, on the CPU: word ids, spellings, cached layers.

Tokens stand one after another, without room for those that are not there: of a thousand sentences
one may be a hundred times as long as the others.

Shapes: B sentences, T tokens of the longest, S of all, N distinct words, C characters, L layers,
D width.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float16, Int
from torch import Tensor

from elmore.embed.embedder import Embedder
from elmore.embed.jobs import layer_cache
from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.text.characters import ByteAlphabet

UNKNOWN = -1


class Read(NamedTuple):
    """The tokens of a batch of sentences, whatever of them is asked for."""

    mask: Bool[Tensor, "B T"]
    """Where they stand when sentences lie side by side."""
    places: Int[Tensor, " S"]
    """The same as numbers, counted through from the first sentence to the last."""
    words: Int[Tensor, " S"] | None
    """Rows of a table, -1 for an unknown word."""
    index: Int[Tensor, " S"] | None
    """Which of the distinct words it is."""
    characters: Int[Tensor, "N C"] | None
    layers: Float16[Tensor, "L S D"] | None
    sentences: list[list[str]]
    """The tokens themselves, for a biLM that is trained along."""


def known_words(sentences: Iterable[Sequence[str]], *, min_count: int) -> list[str]:
    """Give the words worth a vector of their own, the most frequent first."""
    counts = Counter(word for sentence in sentences for word in sentence)
    return [word for word, count in counts.most_common() if count >= min_count]


@dataclass(frozen=True)
class Reader:
    """How a task's sentences are read. Without words, an alphabet or a biLM, these are left out."""

    ids: Callable[[Sequence[str]], Int[np.ndarray, " T"]] | None = None
    alphabet: ByteAlphabet | None = None
    elmo: Embedder | None = None
    """A frozen biLM: its layers are read, not learned."""

    def cached(self, sentences: Iterable[Sequence[str]]) -> CachedLayers | None:
        """Have the layers of a text on the disk, for many passes."""
        return None if self.elmo is None else layer_cache.load_or_compute(self.elmo, sentences)

    def found(self, sentences: Iterable[Sequence[str]]) -> CachedLayers | None:
        """Have them from the disk, if they are there."""
        return None if self.elmo is None else layer_cache.load(self.elmo, sentences)

    def computed(self, sentences: Iterable[Sequence[str]]) -> CachedLayers | None:
        """Have them in memory, for one pass over a few sentences."""
        return None if self.elmo is None else layer_cache.compute(self.elmo, sentences)

    def read(self, sentences: list[list[str]], layers: CachedLayers | None) -> Read:
        """Make a batch of sentences whose layers are there."""
        lengths = [len(sentence) for sentence in sentences]
        mask = np.arange(max(lengths, default=0)) < np.array(lengths)[:, None]
        tokens = [word for sentence in sentences for word in sentence]
        words = index = characters = None
        if self.ids is not None:
            words = self.ids(tokens)
        if self.alphabet is not None:
            numbers = {"": 0}  # for there may be no other
            found = [numbers.setdefault(token, len(numbers)) for token in tokens]
            index = np.array(found, dtype=np.int64)
            characters, _ = self.alphabet.encode(list(numbers))
        states = None if layers is None else layers.of(sentences)
        return Read(
            torch.from_numpy(mask),
            torch.from_numpy(np.flatnonzero(mask)),
            _tensor(words),
            _tensor(index),
            _tensor(characters),
            _tensor(states),
            sentences,
        )


def _tensor(array: np.ndarray | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(array)
