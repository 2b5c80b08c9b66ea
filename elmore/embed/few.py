"""Sentences by the dozen, again and again: what a server reads.

In bulk 96 lanes are quickest, but 64 sentences leave most of them idle most of the time. 16 lanes
(a line of the cache) are nearly as quick for each row, and few sentences fill them; fewer still run
one by one, which is quicker than a product of few rows. The vectors of words are kept from one
call to the next.

Shapes: L layers, T tokens, D width.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.embed.embedder import Embedder
from elmore.embed.layers import Layers, select

LANES = 16
_ROWS = 6  # a step of all lanes takes as long as so many steps of one row


class Few:
    """Reads batch after batch with one embedder; one thread at a time."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._bulk = embedder.bulk(most_lanes=LANES)

    def embed(
        self, texts: Sequence[tuple[list[str], Layers]]
    ) -> Iterator[Float[np.ndarray, "*L T D"]]:
        """Give the vectors of tokenised texts, of each the layers that are asked for."""
        found = self._states([words for words, _ in texts])
        for states, (_, layers) in zip(found, texts, strict=True):
            yield select(states, layers).float().cpu().numpy()

    def _states(self, texts: list[list[str]]) -> Iterator[Float[Tensor, "L T D"]]:
        lengths = [len(words) for words in texts]
        steps = max([sum(lengths) / LANES, *lengths])
        if sum(lengths) >= _ROWS * steps:
            yield from self._bulk.run(texts)
            return
        for words in texts:
            (sentence,) = self.embedder.embed([words], layers="all")
            yield torch.from_numpy(sentence.vectors)
