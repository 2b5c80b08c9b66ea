"""What is known of words, in the rows of a table: the longest unused gives way.

Shapes: R rows of W numbers, N words.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from elmore.embed.transfer import sent

UNKNOWN = -1


class Kept:
    """A table, and whose each row is. It may be replaced by a larger one that begins with it."""

    def __init__(self, table: Float[Tensor, "R W"]) -> None:
        self.table = table
        self._rows: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        """Say how many words are here."""
        return len(self._rows)

    def find(self, words: Sequence[str]) -> Int[np.ndarray, " N"]:
        """Give the row of each word, `UNKNOWN` where it has none; they count as used."""
        rows = [self._rows.get(word, UNKNOWN) for word in words]
        for word, row in zip(words, rows, strict=True):
            if row != UNKNOWN:
                self._rows.move_to_end(word)
        return np.array(rows, dtype=np.int64)

    def keep(self, words: Sequence[str], numbers: Float[Tensor, "N W"]) -> None:
        """Keep what is known of distinct words that are not here yet, as many as there is room."""
        room, held = len(self.table), len(self._rows)
        words = words[:room]
        free = range(held, min(room, held + len(words)))
        oldest = list(islice(self._rows, len(words) - len(free)))
        rows = [*free, *(self._rows[word] for word in oldest)]
        (to,) = sent([np.array(rows, dtype=np.int64)], self.table.device)
        self.table[to] = numbers[:room]
        for word in oldest:  # not before: there may have been no memory for what is above
            del self._rows[word]
        self._rows.update(zip(words, rows, strict=True))
