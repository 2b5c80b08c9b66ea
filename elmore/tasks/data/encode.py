"""Encode sentences as the tensors of a batch, on the CPU: word ids, character ids, biLM layers.

Tokens are stored packed (no padding), because one very long sentence would otherwise dominate
memory.

Shapes: B sentences, T tokens of the longest, S tokens of all, N distinct words, C characters,
L layers, D width.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float16, Int
from torch import Tensor

from elmore.embed.embedder import Embedder
from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.text.characters import ByteAlphabet, number_words

UNKNOWN = -1
"""The id of a word without a vector."""


class EncodedBatch(NamedTuple):
    """The tokens of a batch of sentences; a part that the network does not use is None."""

    mask: Bool[Tensor, "B T"]
    """True where a token is, when sentences are padded."""
    flat_index: Int[Tensor, " S"]
    """Position of each token in the flattened mask."""
    words: Int[Tensor, " S"] | None
    """Rows of the word table, or UNKNOWN."""
    index: Int[Tensor, " S"] | None
    """Which row of `characters` each token has."""
    characters: Int[Tensor, "N C"] | None
    layers: Float16[Tensor, "L S D"] | None
    """Layers of a frozen biLM."""
    sentences: list[list[str]]
    """The tokens themselves, for a biLM that is fine-tuned."""


def build_vocabulary(sentences: Iterable[Sequence[str]], *, min_count: int) -> list[str]:
    """Return the words that occur at least `min_count` times, most frequent first."""
    counts = Counter(word for sentence in sentences for word in sentence)
    return [word for word, count in counts.most_common() if count >= min_count]


@dataclass(frozen=True)
class BatchEncoder:
    """Turns sentences into tensors. Parts that are None are left out of the batch."""

    word_ids: Callable[[Sequence[str]], Int[np.ndarray, " T"]] | None = None
    alphabet: ByteAlphabet | None = None
    frozen_elmo: Embedder | None = None
    """A biLM whose layers are inputs, not weights."""

    def encode(self, sentences: list[list[str]], layers: CachedLayers | None) -> EncodedBatch:
        """Encode a batch of sentences, whose biLM layers are in `layers` if there is a biLM."""
        lengths = [len(sentence) for sentence in sentences]
        mask = np.arange(max(lengths, default=0)) < np.array(lengths)[:, None]
        tokens = chain.from_iterable(sentences)
        distinct, index = number_words(["", *tokens])  # so that there is a row even without a token
        words = None if self.word_ids is None else self.word_ids(distinct)[index[1:]]
        characters = None if self.alphabet is None else self.alphabet.encode(distinct)[0]
        states = None if layers is None else layers.of(sentences)
        return EncodedBatch(
            torch.from_numpy(mask),
            torch.from_numpy(np.flatnonzero(mask)),
            _to_tensor(words),
            None if characters is None else torch.from_numpy(index[1:]),
            _to_tensor(characters),
            _to_tensor(states),
            sentences,
        )


def _to_tensor(array: np.ndarray | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(array)
