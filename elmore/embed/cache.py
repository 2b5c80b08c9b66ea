"""Word vectors that need no context, computed once for each word and kept under a budget.

Words are encoded in blocks of fixed shape: what a word gets depends on its own letters alone, to
the bit, whether it comes from the cache or not and whatever else is in its block. There is no list
of known words: a word not seen before is spelled like any other.

Shapes: N words, C characters, D width of one direction.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.embed import sizes
from elmore.embed.kept import UNKNOWN, Kept
from elmore.embed.lanes import even_rows
from elmore.embed.transfer import sent
from elmore.model.bilm import BiLM
from elmore.text.characters import Alphabet

_LONGEST = 100  # letters: a longer word takes more room than its vector, and hardly comes again
WIDTHS = (6, 9, 12, 16, 24)  # columns a word may fill; a longer one fills all there are


class WordVectors:
    """The token layer of a model as a lookup, bounded in memory: the longest unused goes first."""

    def __init__(self, model: BiLM, alphabet: Alphabet, *, megabytes: float = 256) -> None:
        self.model = model
        self.alphabet = alphabet
        like = next(model.parameters())
        width = model.config.lstm.output_dim
        self._capacity = int(megabytes * 1e6 / (like.element_size() * width))
        self._kept = Kept(like.new_empty(0, width))

    @torch.no_grad()
    def __call__(self, words: Sequence[str]) -> Float[Tensor, "N D"]:
        """Give the vectors of distinct words."""
        rows, table = self._kept.find(words), self._kept.table
        vectors = table.new_empty(len(words), table.shape[1])
        known, unknown = (rows != UNKNOWN).nonzero()[0], (rows == UNKNOWN).nonzero()[0]
        here, there = sent([known, rows[known]], table.device)
        vectors[here] = table[there]
        if len(unknown):
            new = [words[i] for i in unknown.tolist()]
            encoded = self._encode(new)
            vectors[self._tensor(unknown)] = encoded
            self._keep(new, encoded)
        return vectors

    def _keep(self, words: list[str], vectors: Float[Tensor, "N D"]) -> None:
        short = [i for i, word in enumerate(words) if len(word) <= _LONGEST]
        words, vectors = [words[i] for i in short], vectors[self._tensor(np.array(short, int))]
        self._grow(len(self._kept) + len(words))
        self._kept.keep(words, vectors)

    def _grow(self, needed: int) -> None:
        """Make room for more words, up to the budget or to what a GPU has left."""
        before = self._kept.table
        room = len(before)
        if needed <= room or room == self._capacity:
            return
        try:
            size = min(self._capacity, max(needed, 2 * room))
            table = before.new_empty(size, before.shape[1])
        except torch.OutOfMemoryError:
            self._capacity = room
            return
        table[:room] = before
        self._kept.table = table

    def _encode(self, words: list[str]) -> Float[Tensor, "N D"]:
        characters, ids = self.alphabet.encode(words)
        config = self.model.config
        table = self._kept.table
        size = sizes.of(table.device).words
        if table.device.type == "cpu":
            size = even_rows(size, config.characters.num_filters if config.characters else 1)
        vectors = table.new_empty(len(words), table.shape[1])
        for rows, columns in self._groups(characters, len(words)):
            for start in range(0, len(rows), size):
                block = rows[start : start + size]
                full = np.resize(block, size)  # filled up with its own words over again
                letters = None if characters is None else self._cut(characters[full], columns)
                numbers = None if ids is None else self._tensor(ids[full])
                encoded = self.model.tokens(letters, numbers)
                vectors[self._tensor(block)] = encoded[: len(block)]
        return vectors

    def _groups(
        self, characters: Int[np.ndarray, "N C"] | None, num_words: int
    ) -> Iterator[tuple[Int[np.ndarray, " n"], int]]:
        """Give the words of each width: the fewest columns of `WIDTHS` that hold the word."""
        config = self.model.config.characters
        if characters is None or config is None:
            yield np.arange(num_words), 0
            return
        lengths = (characters != config.padding_id).sum(axis=1)
        widths = np.array(
            [*(w for w in WIDTHS if w < config.max_characters), config.max_characters]
        )
        columns = widths[np.searchsorted(widths, lengths)]
        for width in np.unique(columns):
            yield (columns == width).nonzero()[0], int(width)

    def _cut(self, characters: Int[np.ndarray, "n C"], columns: int) -> Int[Tensor, "n c"]:
        config = self.model.config.characters
        assert config is not None
        fitted = np.full((len(characters), columns), config.padding_id, dtype=np.int64)
        shared = min(columns, characters.shape[1])
        fitted[:, :shared] = characters[:, :shared]
        return self._tensor(fitted)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return sent([array], self._kept.table.device)[0]
