"""What the worker does with a batch: one run of the model for the texts of all its requests."""

from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.embed.few import Few
from elmore.embed.layers import Layers
from elmore.lm import scoring
from elmore.lm.scoring import Scores
from elmore.probe.neighbors import Neighbor

EMBED, SCORE, SEARCH = "embed", "score", "search"


class Index(Protocol):
    """An index of the uses of words, as `elmore neighbors` builds it."""

    @property
    def layer(self) -> Layers:
        """The layer whose vectors are compared."""
        ...

    def like(
        self, vector: Float[np.ndarray, " D"], tokens: list[str], k: int
    ) -> Sequence[Neighbor]:
        """Give the uses nearest to a word with this vector, in this sentence."""
        ...


class Uses(NamedTuple):
    """An index, and how a query for it is read."""

    index: Index
    mark: Callable[[str], tuple[list[str], int]]
    """Reads "the [play] was …": the tokens, and which of them is marked."""


class Reading(NamedTuple):
    """Texts to be read, and which of the layers are wanted."""

    texts: list[list[str]]
    layers: Layers


class Search(NamedTuple):
    """A use to compare with others."""

    tokens: list[str]
    position: int
    k: int


class Engine:
    """A model, and an index where there is one. One thread at a time works with it."""

    def __init__(self, embedder: Embedder, uses: Uses | None = None) -> None:
        self.embedder, self.uses = embedder, uses
        embedder.bundle.model.eval()  # for good: other threads may read with it
        self._few = Few(embedder)

    @property
    def can_score(self) -> bool:
        """Whether the model says how likely words are."""
        bundle = self.embedder.bundle
        return bundle.softmax is not None and bundle.vocabulary is not None

    def run(self, kind: Hashable, works: Sequence[Any]) -> list[Any]:
        """Do all the work of one kind; one result for each."""
        if kind == EMBED:
            return self._embed(works)
        return self._score(works) if kind == SCORE else self._search(works)

    def _embed(self, works: Sequence[Reading]) -> list[list[Float[np.ndarray, "*L T D"]]]:
        texts = [(words, work.layers) for work in works for words in work.texts]
        found = iter(self._few.embed(texts))
        return [list(islice(found, len(work.texts))) for work in works]

    def _score(self, works: Sequence[list[list[str]]]) -> list[list[Scores]]:
        texts = [words for work in works for words in work]
        found = iter(scoring.score_together(self.embedder.bundle, texts))
        return [list(islice(found, len(work))) for work in works]

    def _search(self, works: Sequence[Search]) -> list[Sequence[Neighbor]]:
        assert self.uses is not None
        index = self.uses.index
        vectors = self._few.embed([(work.tokens, index.layer) for work in works])
        return [
            index.like(read[work.position], work.tokens, work.k)
            for work, read in zip(works, vectors, strict=True)
        ]
