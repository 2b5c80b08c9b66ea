"""Sentences that come and go while others are being read: what a server reads.

In bulk, lanes are quickest, but a server has few sentences, and none should wait for the end of
another. Here each is a row of its own. A few steps at a time are read of the rows that are open:
who comes joins at the next of them, and who is read to the end leaves. Both directions go side by
side, so rows may be anywhere in their sentences. The vectors of words are kept.

The weights are read once for all rows of a step. From some number of rows on that is no longer what
takes the time, and one more only makes the others slower: so the first come are read, and the rest
waits. Where very many wait, all are read, which is the quickest for all of them together.

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

_CROWD = 3  # times as many as are few: more than that are read all at once
_FEWEST = 2  # steps: one by itself costs more than a row that idles for another


@dataclass(eq=False)
class Row:
    """A sentence, as far as it is read; its layers are whole when `left` is 0."""

    layers: Float[Tensor, "L+1 T 2*D"]
    state: BiLMState
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
        self._sizes = sizes.of(begin.device)
        self._rows: list[Row] = []

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
            rows.append(Row(tokens.new_empty(shape), self._start))
            rows[-1].layers[0] = tokens.repeat(1, 2)
        self._rows += rows
        return rows

    def leave(self, rows: Collection[Row]) -> None:
        """Let go of rows; of those that are not here too."""
        self._rows = [row for row in self._rows if row not in rows]

    def advance(self) -> None:
        """Read a few steps more, and let go of the rows that are at their end."""
        few = self._sizes.few
        rows = self._rows if len(self._rows) > _CROWD * few else self._rows[:few]
        left = [row.left for row in rows] or [0]
        steps = min(max(left), self._sizes.steps, max(min(left), _FEWEST))
        if steps:
            with torch.no_grad(), self._bundle.without_dropout():
                ends = [self._read(rows, direction, steps) for direction in (FORWARD, BACKWARD)]
            state = BiLMState.stack(*ends)
            for number, row in enumerate(rows):
                row.state = BiLMState(*(part[:, :, number : number + 1] for part in state))
                row.read += min(steps, row.left)
        self.leave({row for row in rows if not row.left})

    def _read(self, rows: list[Row], direction: int, steps: int) -> list[LSTMState]:
        """Fill in what one direction says of the next steps."""
        places = [row.ahead(direction, steps) for row in rows]
        inputs = pad_sequence([_turned(each[0], direction) for each in places], batch_first=True)
        counts = torch.tensor([each.shape[1] for each in places], device=inputs.device)
        busy = torch.arange(steps, device=inputs.device) < counts[:, None]  # (B, S)
        parts = zip(*(row.state for row in rows), strict=True)
        before = BiLMState(*(torch.cat(part, dim=2) for part in parts)).of(direction)
        outputs, after = self._bundle.model.read(direction, inputs, busy, before)
        for place, said in zip(places, torch.stack(outputs, dim=1), strict=True):
            place[1:] = _turned(said[:, : place.shape[1]], direction)
        return after


def _turned(part: Float[Tensor, "*L s D"], direction: int) -> Float[Tensor, "*L s D"]:
    """Bring the order of the text into that of the direction, or back."""
    return part.flip(-2) if direction == BACKWARD else part
