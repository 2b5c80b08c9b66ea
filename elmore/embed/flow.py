"""Sentences that come and go while others are being read: what a server reads.

In bulk, lanes are quickest, but a server has few sentences, and none should wait for the end of
another. Here each is a row of its own. A few steps at a time are read of all rows that are open:
who comes joins at the next of them, and who is read to the end leaves. Both directions go side by
side, so rows may be anywhere in their sentences. The vectors of words are kept.

Shapes: B rows, S steps, T tokens of one row, L layers, D width of one direction.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elmore.embed import sizes
from elmore.embed.embedder import Embedder
from elmore.embed.lanes import after_boundary
from elmore.model.bilm import BACKWARD, FORWARD, BiLMState
from elmore.model.lstm import LSTMState


@dataclass(eq=False)
class Row:
    """A sentence, as far as it is read; its layers are whole when `left` is 0."""

    layers: Float[Tensor, "L+1 T 2*D"]
    read: int = 0

    @property
    def left(self) -> int:
        """How many tokens each direction still has before it."""
        return self.layers.shape[1] - self.read

    def ahead(self, direction: int, steps: int) -> Float[Tensor, "L+1 s D"]:
        """Give the place, in the order of the text, of what one direction reads next."""
        steps = min(steps, self.left)
        begin = self.read if direction == FORWARD else self.left - steps
        return self.layers[:, begin : begin + steps].chunk(2, dim=2)[direction]


class Flow:
    """Reads with one embedder, whose weights stay as they are; one thread at a time."""

    def __init__(self, embedder: Embedder) -> None:
        bulk = embedder.bulk()
        self._bundle, self._words = bulk.bundle, bulk.words
        alphabet, model = self._bundle.alphabet, self._bundle.model
        with torch.no_grad(), self._bundle.without_dropout():
            begin, end = self._words([alphabet.begin, alphabet.end])
            self._start = after_boundary(model, begin, end, bulk.start)
        self._steps = sizes.of(begin.device).steps
        self._rows: list[Row] = []
        self._state = _picked(self._start, [])

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
            rows.append(Row(tokens.new_empty(shape)))
            rows[-1].layers[0] = tokens.repeat(1, 2)
        self._rows += rows
        fresh = _picked(self._start, [0] * len(rows))
        self._state = BiLMState(*map(_beside, self._state, fresh))
        return rows

    def leave(self, rows: Collection[Row]) -> None:
        """Let go of rows; of those that are not here too."""
        staying = [place for place, row in enumerate(self._rows) if row not in rows]
        if len(staying) < len(self._rows):
            self._rows = [self._rows[place] for place in staying]
            self._state = _picked(self._state, staying)

    def advance(self) -> None:
        """Read a few steps more of all rows, and let go of those that are at their end."""
        # The fewer rows, the more of a step is the reading of weights: several steps share it.
        steps = min(
            max((row.left for row in self._rows), default=0),
            max(1, self._steps // max(1, len(self._rows))),
        )
        if steps:
            with torch.no_grad(), self._bundle.without_dropout():
                ends = [self._read(direction, steps) for direction in (FORWARD, BACKWARD)]
            self._state = BiLMState.stack(*ends)
            for row in self._rows:
                row.read += min(steps, row.left)
        self.leave({row for row in self._rows if not row.left})

    def _read(self, direction: int, steps: int) -> list[LSTMState]:
        """Fill in what one direction says of the next steps."""
        places = [row.ahead(direction, steps) for row in self._rows]
        inputs = pad_sequence([_turned(each[0], direction) for each in places], batch_first=True)
        counts = torch.tensor([each.shape[1] for each in places], device=inputs.device)
        busy = torch.arange(steps, device=inputs.device) < counts[:, None]  # (B, S)
        states = self._state.of(direction)
        outputs, states = self._bundle.model.read(direction, inputs, busy, states)
        for place, said in zip(places, torch.stack(outputs, dim=1), strict=True):
            place[1:] = _turned(said[:, : place.shape[1]], direction)
        return states


def _turned(part: Float[Tensor, "*L s D"], direction: int) -> Float[Tensor, "*L s D"]:
    """Bring the order of the text into that of the direction, or back."""
    return part.flip(-2) if direction == BACKWARD else part


def _picked(state: BiLMState, rows: list[int]) -> BiLMState:
    which = torch.tensor(rows, dtype=torch.long, device=state.output.device)
    return BiLMState(*(part.index_select(2, which) for part in state))


def _beside(one: Float[Tensor, "2 L b X"], other: Float[Tensor, "2 L c X"]) -> Tensor:
    return torch.cat([one, other], dim=2)
