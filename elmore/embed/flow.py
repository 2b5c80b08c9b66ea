"""Sentences that come and go while others are being read: what a server reads.

In bulk, lanes are quickest, but a server has few sentences, and none should wait for the end of
another. Here each has a lane of its own. A few steps at a time are read of the sentences that are
open: who comes joins at the next of them, and who is read to the end leaves. Both directions go
side by side, so rows may be anywhere in their sentences. What is known of words is kept.

The weights are read once for all lanes of a step. From some number of lanes on that is no longer
what takes the time, and one more only makes the others slower: so the first come are read, and the
rest waits. Where very many wait, as many are read as are the quickest for all of them together,
and a lane whose sentence ends goes on with the next.

Shapes: B lanes, S steps, T tokens of one row, L layers, D width of one direction.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.embed import sizes
from elmore.embed.driven import RecentlyDriven
from elmore.embed.embedder import Embedder
from elmore.embed.lanes import after_boundary
from elmore.embed.transfer import sent
from elmore.model.bilm import BACKWARD, FORWARD, BiLMState

# Steps at a time, at least: fewer cost more than a row that idles for the others; one more for so
# many rows, of which some are always near their end.
_FEWEST, _MORE = 2, 8


@dataclass(eq=False)
class Row:
    """A sentence, as far as it is read; its layers are whole when `left` is 0."""

    words: Sequence[str]
    layers: Float[Tensor, "L+1 T 2*D"]
    read: int = 0

    @property
    def left(self) -> int:
        """How many tokens each direction still has before it."""
        return len(self.words) - self.read


class _Piece(NamedTuple):
    """So many tokens of a row, in a lane from some step on."""

    row: Row
    lane: int
    step: int
    count: int

    def place(self, direction: int) -> slice:
        """Say where they stand in the text."""
        row = self.row
        begin = row.read if direction == FORWARD else row.left - self.count
        return slice(begin, begin + self.count)

    def words(self, direction: int) -> Sequence[str]:
        """Give the words as the direction reads them."""
        words = self.row.words[self.place(direction)]
        return words if direction == FORWARD else words[::-1]

    def fill(self, direction: int, said: Float[Tensor, "L s D"]) -> None:
        """Write down what is said of them."""
        half = self.row.layers[1:, self.place(direction)].chunk(2, dim=2)[direction]
        half.copy_(said if direction == FORWARD else said.flip(1))


class Flow:
    """Reads with one embedder, whose weights stay as they are; one thread at a time."""

    def __init__(self, embedder: Embedder) -> None:
        bulk = embedder.bulk()
        self._bundle, self._words = bulk.bundle, bulk.words
        alphabet, model = self._bundle.alphabet, self._bundle.model
        with torch.no_grad(), self._bundle.without_dropout():
            begin, end = self._words([alphabet.begin, alphabet.end])
            self._start = after_boundary(model, begin, end, bulk.start)
        self._sizes = sizes.of(begin.device)
        most = 2 * self._sizes.crowd * self._sizes.steps
        self._driven = RecentlyDriven(model, self._words, at_least=most, like=begin)
        self._rows: list[Row] = []
        self._state = _fresh(self._start, 0)  # of those that are begun: they come first, in lanes

    def join(self, texts: Sequence[Sequence[str]]) -> list[Row]:
        """Begin to read tokenised texts; each has a row, which is filled by and by."""
        numbers = {self._bundle.alphabet.begin: 0}  # for there may be no other word
        for words in texts:
            for word in words:
                numbers.setdefault(word, len(numbers))
        vectors = self._words(list(numbers))
        rows = []
        for words in texts:
            text = torch.tensor([numbers[word] for word in words], dtype=torch.long)
            tokens = vectors[text.to(vectors.device)]  # (T, D)
            shape = (self._bundle.config.num_layers, len(words), 2 * tokens.shape[1])
            rows.append(Row(words, tokens.new_empty(shape)))
            rows[-1].layers[0] = tokens.repeat(1, 2)
        self._rows += [row for row in rows if row.left]
        return rows

    def leave(self, rows: Collection[Row]) -> None:
        """Let go of rows; of those that are not here too."""
        self._state = _chosen(
            self._state,
            [number for number, row in enumerate(self._rows) if row.read and row not in rows],
        )
        self._rows = [row for row in self._rows if row not in rows]

    def advance(self) -> None:
        """Read a few steps more, and let go of the rows that are at their end."""
        if not self._rows:
            return
        rows = self._rows[: self._sizes.crowd]
        left = [row.left for row in rows]
        fewest = _FEWEST + len(rows) // _MORE
        steps = min(max(left), max(min(left), fewest), self._sizes.steps)
        pieces = _dealt(rows, iter(self._rows[len(rows) :]), steps)
        new = sum(not row.read for row in rows)
        with torch.no_grad(), self._bundle.without_dropout():
            state = self._read(pieces, _joined(self._state, _fresh(self._start, new)), steps)
        for piece in pieces:
            piece.row.read += piece.count
        lanes = {piece.row: piece.lane for piece in pieces}
        self._rows = [row for row in self._rows if row.left]
        self._state = _chosen(state, [lanes[row] for row in self._rows if row.read])

    def _read(self, pieces: list[_Piece], before: BiLMState, steps: int) -> BiLMState:
        """Fill in what both directions say of the pieces; the state of all lanes comes back."""
        lanes = before.output.shape[2]
        places = [(p.step + np.arange(p.count)) * lanes + p.lane for p in pieces]
        begins = [
            place[0] for place, piece in zip(places, pieces, strict=True) if not piece.row.read
        ]
        busy, starts = np.zeros((2, steps * lanes), dtype=bool)
        busy[np.concatenate(places)] = starts[begins] = True
        ways = (FORWARD, BACKWARD)
        words = [word for way in ways for piece in pieces for word in piece.words(way)]
        grids = np.zeros((2, steps * lanes), dtype=np.int64)  # who is idle reads anything
        grids[:, np.concatenate(places)] = self._driven.find(words).reshape(2, -1)
        arrays = [each.reshape(steps, lanes) for each in (busy, starts, *grids)]
        mask, begun, *rows = (each.T for each in sent(arrays, before.output.device))
        fresh, ends = _fresh(self._start, lanes), []
        for way in ways:
            inputs = self._driven.said(way, rows[way].T).transpose(0, 1)
            anew = begun if begins else None
            outputs, after = self._bundle.model.read(
                way, inputs, mask, before.of(way), anew, fresh.of(way), driven=True
            )
            ends.append(after)
            said = torch.stack(outputs)  # (L, B, S, D)
            for piece in pieces:
                piece.fill(way, said[:, piece.lane, piece.step : piece.step + piece.count])
        return BiLMState.stack(*ends)


def _dealt(rows: Sequence[Row], later: Iterator[Row], steps: int) -> list[_Piece]:
    """Give each row a lane, and where it ends there the next of those that come later."""
    pieces = []
    for lane, first in enumerate(rows):
        row, step = first, 0
        while row is not None and step < steps:
            pieces.append(_Piece(row, lane, step, min(row.left, steps - step)))
            step += row.left
            row = next(later, None) if step < steps else None
    return pieces


def _fresh(start: BiLMState, lanes: int) -> BiLMState:
    """Give the state of so many who are about to begin."""
    return BiLMState(*(part.expand(-1, -1, lanes, -1) for part in start))


def _chosen(state: BiLMState, lanes: list[int]) -> BiLMState:
    if lanes == list(range(state.output.shape[2])):
        return state  # as it is most of the time
    return BiLMState(*(part[:, :, lanes] for part in state))


def _joined(one: BiLMState, other: BiLMState) -> BiLMState:
    if not other.output.shape[2]:
        return one
    return BiLMState(*(torch.cat(parts, dim=2) for parts in zip(one, other, strict=True)))
