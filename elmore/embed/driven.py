"""What words say to the gates of the first LSTM layer, computed once for a word that comes again.

It is a matter of the word alone, and a quarter of all the arithmetic of a biLM. Words are driven in
blocks of fixed shape, so a word gets the same bits in any company.

Shapes: N distinct words, T tokens, S steps, B lanes, D width of one direction,
G = 4H gates.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.embed import sizes
from elmore.model.bilm import BiLM

_NOWHERE = -1


class DrivenWords:
    """A table with a row for each of the most frequent words of a text, as many as have room.

    Beside them is room for the others that are read `at_once`, which are driven when asked for.
    """

    def __init__(
        self,
        model: BiLM,
        direction: int,
        words: Float[Tensor, "N D"],
        text: Int[np.ndarray, " T"],
        *,
        at_once: int,
    ) -> None:
        self.model, self.direction, self.words = model, direction, words
        gates = 4 * model.config.lstm.cell_dim
        size = sizes.of(words.device)
        self._block = size.driven
        most = int(size.room / (gates * words.element_size()))
        numbers, counts = np.unique(text, return_counts=True)
        frequent = numbers[np.argsort(-counts, kind="stable")[:most]]
        self._num_kept = len(frequent)
        self._table = words.new_empty(len(frequent) + at_once + self._block, gates)
        self._said = words.new_empty(at_once, gates)  # memory that is new each time costs time
        self._rows = np.full(len(words), _NOWHERE)
        self._drive(frequent, 0)

    def __call__(self, numbers: Int[np.ndarray, "S B"]) -> Float[Tensor, "B S G"]:
        """Give what words say, by their numbers; it is overwritten by the next call."""
        others = np.unique(numbers[self._rows[numbers] == _NOWHERE])
        self._drive(others, self._num_kept)
        rows = torch.from_numpy(self._rows[numbers].flatten()).to(self._table.device)
        self._rows[others] = _NOWHERE
        said = torch.index_select(self._table, 0, rows, out=self._said[: len(rows)])
        return said.unflatten(0, numbers.shape).transpose(0, 1)

    def _drive(self, numbers: Int[np.ndarray, " n"], begin: int) -> None:
        """Fill the table from row `begin` on; a block is filled up with its own words again."""
        self._rows[numbers] = begin + np.arange(len(numbers))
        for start in range(0, len(numbers), self._block):
            block = np.resize(numbers[start : start + self._block], self._block)
            vectors = self.words[torch.from_numpy(block).to(self.words.device)]
            driven = self.model.drive(self.direction, vectors[None])[0]
            self._table[begin + start : begin + start + len(driven)] = driven
