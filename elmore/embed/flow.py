"""Sentences that come and go while others are being read: what a server reads.

In bulk it is known what there is to read; here none should wait for the end of all others. A few
steps at a time are read of the sentences that are in lanes, each in its own. Who comes takes a lane
that is free, or waits for one; a lane whose sentence ends goes on with the next that waits. Both
directions go side by side, so sentences may be read to any place. What is known of words is kept.

The weights are read once for all lanes of a step, so one more hardly costs the others time, up to
some number. Those of a request that has many wait for each other: a later one that has few is not
kept behind all of them.

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
from elmore.model.stored import with_bytes

_FEWEST = 4  # steps at a time: fewer by themselves cost more than a row that idles for the others
_ROWS_A_STEP = 8  # the more there are, the sooner one ends: a step more for so many


@dataclass(eq=False)
class Row:
    """A sentence, as far as it is read; its layers are whole when `left` is 0."""

    words: tuple[str, ...]
    layers: Float[Tensor, "L+1 T 2*D"]
    turn: int
    """The least begins first."""
    read: int = 0

    @property
    def left(self) -> int:
        """How many tokens each direction still has before it."""
        return len(self.words) - self.read


class _Piece(NamedTuple):
    """Some tokens of a row, in a lane from some step on."""

    row: Row
    lane: int
    step: int
    num_tokens: int

    def place(self, direction: int) -> slice:
        """Say where they stand in the text."""
        row = self.row
        begin = row.read if direction == FORWARD else row.left - self.num_tokens
        return slice(begin, begin + self.num_tokens)

    def words(self, direction: int) -> Sequence[str]:
        """Give the words as the direction reads them."""
        words = self.row.words[self.place(direction)]
        return words if direction == FORWARD else words[::-1]

    def fill(self, direction: int, said: Float[Tensor, "L B S D"]) -> None:
        """Write down what is said of them."""
        said = said[:, self.lane, self.step : self.step + self.num_tokens]
        half = self.row.layers[1:, self.place(direction)].chunk(2, dim=2)[direction]
        half.copy_(said if direction == FORWARD else said.flip(1))


class Flow:
    """Reads with one embedder, whose weights stay as they are; one thread at a time."""

    def __init__(self, embedder: Embedder) -> None:
        bulk = embedder.bulk()
        self._bundle, self._words = bulk.bundle, bulk.words
        alphabet = self._bundle.alphabet
        self._model = with_bytes(self._bundle.model)
        with torch.no_grad():
            begin, end = self._words([alphabet.begin, alphabet.end])
            self._start = after_boundary(self._model, begin, end, bulk.start)
        self._sizes = sizes.of(begin.device)
        most = 2 * self._sizes.crowd * self._sizes.steps
        self._driven = RecentlyDriven(self._model, self._words, at_least=most, like=begin)
        self._rows: list[Row] = []  # those that are begun come first
        self._lanes: dict[Row, int] = {}  # of those
        self._state = _fresh(self._start, 0)  # of the lanes
        self._turn = 0  # of who began last

    def join(self, requests: Sequence[Sequence[Sequence[str]]]) -> list[list[Row]]:
        """Begin to read the tokenised texts of requests; each has a row, filled by and by."""
        numbers = {self._bundle.alphabet.begin: 0}  # for there may be no other word
        for texts in requests:
            for words in texts:
                for word in words:
                    numbers.setdefault(word, len(numbers))
        vectors = self._words(list(numbers))
        if len(numbers) <= self._sizes.driven:  # one product then, and not one for each turn
            self._driven.find(list(numbers)[1:])
        joined = []
        for texts in requests:
            rows = []
            for place, words in enumerate(texts):
                text = torch.tensor([numbers[word] for word in words], dtype=torch.long)
                tokens = vectors[text.to(vectors.device)]  # (T, D)
                shape = (self._bundle.config.num_layers, len(words), 2 * tokens.shape[1])
                rows.append(Row(tuple(words), tokens.new_empty(shape), self._turn + place))
                rows[-1].layers[0] = tokens.repeat(1, 2)
            joined.append(rows)
        new = [row for rows in joined for row in rows if row.left]
        self._rows = sorted(self._rows + new, key=lambda row: (not row.read, row.turn))
        return joined

    def leave(self, rows: Collection[Row]) -> None:
        """Let go of rows; of those that are not here too."""
        gone = set(rows)
        self._rows = [row for row in self._rows if row not in gone]
        self._lanes = {row: lane for row, lane in self._lanes.items() if row not in gone}

    def advance(self) -> None:
        """Read a few steps more, and let go of the rows that are at their end."""
        if not self._rows:
            return
        rows, waiting = self._rows[: self._sizes.crowd], self._rows[self._sizes.crowd :]
        steps = self._sizes.steps
        if not waiting:
            left = [row.left for row in rows]
            fewest = _FEWEST + len(rows) // _ROWS_A_STEP
            steps = min(steps, max(left), max(min(left), fewest))
        pieces = _dealt(rows, iter(waiting), steps)
        begun = [self._lanes[row] for row in rows if row.read]
        before = _joined(_chosen(self._state, begun), _fresh(self._start, len(rows) - len(begun)))
        state = self._read(pieces, before, steps)
        # From here on nothing fails: who is answered by an error has not been read by half.
        for piece in pieces:
            piece.row.read += piece.num_tokens
        self._turn = max(self._turn, *(piece.row.turn for piece in pieces))
        self._state = state
        self._lanes = {piece.row: piece.lane for piece in pieces if piece.row.left}
        self._rows = [row for row in self._rows if row.left]

    @torch.no_grad()
    def _read(self, pieces: list[_Piece], before: BiLMState, steps: int) -> BiLMState:
        """Fill in what both directions say of the pieces; the state of all lanes comes back."""
        num_lanes = before.output.shape[2]
        each = [(p.step + np.arange(p.num_tokens)) * num_lanes + p.lane for p in pieces]
        places = np.concatenate(each)
        begins = [place[0] for place, p in zip(each, pieces, strict=True) if not p.row.read]
        busy, starts = np.zeros((2, steps * num_lanes), dtype=bool)
        busy[places] = starts[begins] = True
        ways = (FORWARD, BACKWARD)
        words = [word for way in ways for piece in pieces for word in piece.words(way)]
        said = np.zeros((2, steps * num_lanes), dtype=np.int64)  # who is idle reads anything
        said[:, places] = self._driven.find(words).reshape(2, -1)
        grids = [grid.reshape(steps, num_lanes) for grid in (busy, starts, *said)]
        mask, anew, *entries = sent(grids, before.output.device)
        fresh, ends = _fresh(self._start, num_lanes), []
        for way in ways:
            outputs, after = self._model.run_direction(
                way,
                self._driven.said(way, entries[way]).transpose(0, 1),
                mask.T,
                before.direction(way),
                anew.T if begins else None,
                fresh.direction(way),
                projected=True,
                training=False,
            )
            ends.append(after)
            layers = torch.stack(outputs)
            for piece in pieces:
                piece.fill(way, layers)
        return BiLMState.stack(*ends)


def _dealt(rows: Sequence[Row], waiting: Iterator[Row], steps: int) -> list[_Piece]:
    """Give each row a lane, and where it ends there the next of those that wait."""
    pieces = []
    for lane, first in enumerate(rows):
        row, step = first, 0
        while row is not None and step < steps:
            pieces.append(_Piece(row, lane, step, min(row.left, steps - step)))
            step += row.left
            row = next(waiting, None) if step < steps else None
    return pieces


def _fresh(start: BiLMState, num_lanes: int) -> BiLMState:
    """Give the state of so many who are about to begin."""
    return BiLMState(*(part.expand(-1, -1, num_lanes, -1) for part in start))


def _chosen(state: BiLMState, lanes: list[int]) -> BiLMState:
    if lanes == list(range(state.output.shape[2])):
        return state  # as it is most of the time
    (index,) = sent([np.array(lanes, dtype=np.int64)], state.output.device)
    return BiLMState(*(part[:, :, index] for part in state))


def _joined(one: BiLMState, other: BiLMState) -> BiLMState:
    if not other.output.shape[2]:
        return one
    return BiLMState(*(torch.cat(parts, dim=2) for parts in zip(one, other, strict=True)))
