"""What unknown words cost: their letters, under a model that knows each byte's frequency alone."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from elmore.corpus.shards import MARKS, Tokens


class Words(NamedTuple):
    """What bits per character are made of."""

    count: int
    unknown: int
    characters: int
    spelled_bits: float


class Spelling:
    """What each type of a corpus costs to spell, and whether the softmax knows it."""

    def __init__(
        self,
        types: Sequence[str],
        targets: Int[np.ndarray, " types"],
        unknown: int,
        byte_counts: Sequence[int] | None,
    ) -> None:
        counts = np.zeros(257) if byte_counts is None else np.asarray(byte_counts, dtype=float)
        bits = -np.log2((counts + 1) / (counts + 1).sum())
        self.known = targets != unknown
        self.characters = np.fromiter((len(word) + 1 for word in types), np.int64, len(types))
        self.bits = np.zeros(len(types))
        for number in np.flatnonzero(~self.known):
            letters = np.frombuffer(types[int(number)].encode(), np.uint8)
            self.bits[number] = bits[letters].sum() + bits[256]

    def of(self, tokens: Tokens) -> Words:
        """Count over a text."""
        counts = np.zeros(len(self.known), dtype=np.int64)
        for first in range(0, tokens.num_tokens, 1 << 20):
            positions = np.arange(first, min(first + (1 << 20), tokens.num_tokens))
            counts += np.bincount(tokens.take(positions), minlength=len(counts))
        counts[: len(MARKS)] = 0  # they are no words of the text
        unknown = counts * ~self.known
        return Words(
            int(counts.sum()),
            int(unknown.sum()),
            int((counts * self.characters).sum()),
            float((unknown * self.bits).sum()),
        )
