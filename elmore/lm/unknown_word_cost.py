"""Bits to spell unknown words under a unigram model of bytes, for bits per character."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from elmore.corpus.shards import MARKS, TokenStream


class WordCounts(NamedTuple):
    """Counts over a text that bits per character are computed from."""

    words: int
    unknown: int
    characters: int
    unknown_bits: float
    """Bits to spell the unknown words."""


class UnknownWordCost:
    """Whether the softmax knows each type of a corpus, and the bits to spell those it does not."""

    def __init__(
        self,
        types: Sequence[str],
        targets: Int[np.ndarray, " types"],
        unknown_id: int,
        byte_counts: Sequence[int] | None,
    ) -> None:
        counts = np.zeros(257) if byte_counts is None else np.asarray(byte_counts, dtype=float)
        bits = -np.log2((counts + 1) / (counts + 1).sum())  # the last is the end of a word
        self.known = targets != unknown_id
        self.characters = np.fromiter((len(word) + 1 for word in types), np.int64, len(types))
        self.bits = np.zeros(len(types))
        for number in np.flatnonzero(~self.known):
            spelling = types[int(number)].encode("utf-8", "ignore")  # as the alphabet reads it
            letters = np.frombuffer(spelling, np.uint8)
            self.bits[number] = bits[letters].sum() + bits[256]

    def count(self, tokens: TokenStream) -> WordCounts:
        """Count the words of a text."""
        counts = np.zeros(len(self.known), dtype=np.int64)
        for first in range(0, tokens.num_tokens, 1 << 20):
            positions = np.arange(first, min(first + (1 << 20), tokens.num_tokens))
            counts += np.bincount(tokens.take(positions), minlength=len(counts))
        counts[: len(MARKS)] = 0  # <S> and </S> are not words
        unknown = counts * ~self.known
        return WordCounts(
            int(counts.sum()),
            int(unknown.sum()),
            int((counts * self.characters).sum()),
            float((unknown * self.bits).sum()),
        )
