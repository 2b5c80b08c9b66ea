"""Sentences by the dozen, again and again: what a server reads.

In bulk 96 lanes are quickest, but 64 sentences leave most of them idle most of the time. 16 lanes
(a line of the cache) are nearly as quick for each row and are filled by few sentences; fewer still
run side by side. The vectors of words are kept from one call to the next.

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
_LEAST, _MOST = 8, 2048  # sentences that are worth lanes; tokens side by side, padding included


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
        longest = max(map(len, texts), default=0)
        if len(texts) >= _LEAST or len(texts) * longest > _MOST:
            return self._bulk.run(texts)
        sentences = self.embedder.embed(texts, layers="all")
        return (torch.from_numpy(sentence.vectors) for sentence in sentences)
