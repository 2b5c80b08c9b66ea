"""Sentences by the dozen, again and again: what a server reads.

In bulk, lanes are quickest, but a few dozen sentences leave most of them idle. Here the sentences
run side by side, the longest first, and a step has as many rows as there are sentences that are
still being read: nothing is padding. The vectors of words are kept from one call to the next.

Shapes: B sentences, T tokens of all of them, S steps, L layers, D width of one direction.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.embed.embedder import Embedder
from elmore.embed.lanes import after_boundary
from elmore.embed.layers import Layers, select
from elmore.model.bilm import BACKWARD, FORWARD, BiLMState
from elmore.model.lstm import LSTMState


class Few:
    """Reads batch after batch with one embedder; one thread at a time."""

    def __init__(self, embedder: Embedder) -> None:
        bulk = embedder.bulk()
        self._bundle, self._start, self._words = bulk.bundle, bulk.start, bulk.words

    def embed(
        self, texts: Sequence[tuple[list[str], Layers]]
    ) -> list[Float[np.ndarray, "*L t 2*D"]]:
        """Give the vectors of tokenised texts, of each the layers that are asked for."""
        lengths = [len(words) for words, _ in texts]
        order = sorted(range(len(texts)), key=lambda number: -lengths[number])
        with torch.no_grad(), self._bundle.without_dropout():
            states = self._read([texts[number][0] for number in order])
        parts = states.split([lengths[number] for number in order], dim=1)
        found = dict(zip(order, parts, strict=True))
        return [
            select(found[number], layers).float().cpu().numpy()
            for number, (_, layers) in enumerate(texts)
        ]

    def _read(self, texts: list[list[str]]) -> Float[Tensor, "L+1 T 2*D"]:
        """Give every layer of texts, which stand one after another, the longest first."""
        alphabet, config = self._bundle.alphabet, self._bundle.config
        numbers = {alphabet.begin: 0}
        for words in ([alphabet.end], *texts):
            for word in words:
                numbers.setdefault(word, len(numbers))
        vectors = self._words(list(numbers))
        text = np.array([numbers[word] for words in texts for word in words], dtype=np.int64)
        tokens = vectors[torch.from_numpy(text).to(vectors.device)]  # (T, D)
        layers = tokens.new_empty(config.num_layers, len(text), 2 * tokens.shape[1])
        layers[0] = tokens.repeat(1, 2)
        begin, end = (vectors[numbers[mark]] for mark in (alphabet.begin, alphabet.end))
        start = after_boundary(self._bundle.model, begin, end, self._start)
        lengths = np.array([len(words) for words in texts], dtype=np.int64)
        for direction in (FORWARD, BACKWARD):
            self._read_one_way(direction, tokens, lengths, start, layers)
        return layers

    def _read_one_way(
        self,
        direction: int,
        tokens: Float[Tensor, "T D"],
        lengths: Int[np.ndarray, " B"],
        start: BiLMState,
        layers: Float[Tensor, "L+1 T 2*D"],
    ) -> None:
        """Fill in one direction's half of the layers above the first."""
        width = tokens.shape[1]
        half = slice(direction * width, (direction + 1) * width)
        fresh = BiLMState(*(part.expand(-1, -1, len(lengths), -1) for part in start))
        states = fresh.of(direction)
        for places in _stretches(lengths, backward=direction == BACKWARD):
            where = torch.from_numpy(places).to(tokens.device)  # (b, s)
            states = [LSTMState(*(part[: len(where)] for part in state)) for state in states]
            everyone = torch.ones_like(where, dtype=torch.bool)
            outputs, states = self._bundle.model.read(direction, tokens[where], everyone, states)
            for number, output in enumerate(outputs, start=1):
                layers[number, where, half] = output


def _stretches(
    lengths: Int[np.ndarray, " B"], *, backward: bool
) -> Iterator[Int[np.ndarray, "b s"]]:
    """Give the places of what is read together, from where one sentence ends to the next such.

    The longest comes first, so those still being read are always the first rows.
    """
    first = np.cumsum(lengths) - lengths
    begin = 0
    for end in np.unique(lengths[lengths > 0]):
        rows = int((lengths >= end).sum())
        steps = np.arange(begin, end)
        if backward:
            yield (first + lengths - 1)[:rows, None] - steps
        else:
            yield first[:rows, None] + steps
        begin = int(end)
