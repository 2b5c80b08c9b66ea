"""What words say to the gates of the first LSTM layer, computed once for a word that comes again.

It is a matter of the word alone, and a quarter of all the arithmetic of a biLM.

Shapes: N distinct words, K stretches of M words that are read at once, D width of one direction,
G = 4H gates, R rows of a table.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.embed import sizes
from elmore.embed.kept import UNKNOWN, Kept
from elmore.embed.transfer import sent
from elmore.model.bilm import BACKWARD, FORWARD, BiLM

_NOWHERE = -1


class DrivenWords:
    """A table with a row for each of the most frequent words of a text, as many as have room.

    Words are driven in blocks of fixed shape, so a word gets the same bits in any company.
    Beside them is room for the others of a stretch, which are driven when it is asked for. Which
    they are is worked out beforehand: no stretch has to wait until a GPU has read the last.
    """

    def __init__(
        self,
        model: BiLM,
        direction: int,
        words: Float[Tensor, "N D"],
        stretches: Int[np.ndarray, "K M"],
    ) -> None:
        self._model, self._direction, self._words = model, direction, words
        gates = 4 * model.config.lstm.cell_dim
        size = sizes.of(words.device)
        self._block = size.driven
        most = int(size.room / (gates * words.element_size()))
        plan = _plan(stretches, len(words), most)
        self._num_kept, at_once = len(plan.frequent), stretches.shape[1]
        self._table = words.new_empty(self._num_kept + at_once + self._block, gates)
        self._said = words.new_empty(at_once, gates)  # memory that is new each time costs time
        filled = [_filled(numbers, self._block) for numbers in (plan.frequent, *plan.others)]
        stops = np.cumsum([len(numbers) for numbers in filled]).tolist()
        numbers, self._rows = sent([np.concatenate(filled), plan.rows], words.device)
        frequent, *self._others = numbers.tensor_split(stops[:-1])
        self._drive(frequent, 0)

    def __call__(self, stretch: int) -> Float[Tensor, "M G"]:
        """Give what the words of a stretch say; it is overwritten by the next call."""
        self._drive(self._others[stretch], self._num_kept)
        return torch.index_select(self._table, 0, self._rows[stretch], out=self._said)

    def _drive(self, numbers: Int[Tensor, " n"], begin: int) -> None:
        """Fill the table from row `begin` on, with whole blocks."""
        for block in numbers.split(self._block) if len(numbers) else ():
            driven = self._model.project_inputs(self._direction, self._words[block][None])[0]
            self._table[begin : begin + len(driven)] = driven
            begin += len(driven)


class RecentlyDriven:
    """What the words of late say, in both directions: for texts that come one by one.

    There is room for `at_least` words, and for more where a row is short.
    """

    def __init__(
        self,
        model: BiLM,
        vectors: Callable[[Sequence[str]], Float[Tensor, "N D"]],
        *,
        at_least: int,
        like: Tensor,
    ) -> None:
        self._model, self._vectors = model, vectors
        gates = 4 * model.config.lstm.cell_dim
        size = sizes.of(like.device)
        self._block = size.driven
        room = int(size.room / (2 * gates * like.element_size()))
        self._kept = Kept(like.new_empty(max(room, at_least), 2 * gates))

    @torch.no_grad()
    def find(self, words: Sequence[str]) -> Int[np.ndarray, " n"]:
        """Give the rows of words, of which no more than `at_least` are distinct.

        They hold until others are asked for.
        """
        distinct = list(dict.fromkeys(words))
        rows = self._kept.find(distinct)
        new = [distinct[i] for i in (rows == UNKNOWN).nonzero()[0].tolist()]
        for begin in range(0, len(new), self._block):
            block = new[begin : begin + self._block]
            vectors = self._vectors(block)[None]
            driven = [self._model.project_inputs(way, vectors)[0] for way in (FORWARD, BACKWARD)]
            self._kept.keep(block, torch.cat(driven, dim=1))
        numbers = dict(zip(distinct, self._kept.find(distinct).tolist(), strict=True))
        return np.array([numbers[word] for word in words], dtype=np.int64)

    def said(self, direction: int, rows: Int[Tensor, "*S"]) -> Float[Tensor, "*S G"]:
        """Give what they say, by row."""
        table = self._kept.table
        said = table.view(2 * len(table), -1).index_select(0, (2 * rows + direction).flatten())
        return said.unflatten(0, rows.shape)


class _Plan(NamedTuple):
    frequent: Int[np.ndarray, " n"]
    others: list[Int[np.ndarray, " n"]]
    """Of each stretch."""
    rows: Int[np.ndarray, "K M"]
    """Of the table: first the frequent, behind them the others of a stretch."""


def _plan(stretches: Int[np.ndarray, "K M"], num_words: int, most: int) -> _Plan:
    counts = np.bincount(stretches.reshape(-1), minlength=num_words)
    frequent = np.argsort(-counts, kind="stable")[: min(most, np.count_nonzero(counts))]
    rows = np.full(num_words, _NOWHERE)
    rows[frequent] = np.arange(len(frequent))
    rows = rows[stretches]
    seldom = rows == _NOWHERE
    stretch = seldom.nonzero()[0]
    asked, which = np.unique(stretch * num_words + stretches[seldom], return_inverse=True)
    begins = np.searchsorted(asked, num_words * np.arange(len(stretches)))
    rows[seldom] = len(frequent) + which - begins[stretch]
    return _Plan(frequent, np.split(asked % num_words, begins[1:]), rows)


def _filled(numbers: Int[np.ndarray, " n"], block: int) -> Int[np.ndarray, " m"]:
    """Make whole blocks of words, filled up with the same words again."""
    return np.resize(numbers, -(-len(numbers) // block) * block)
