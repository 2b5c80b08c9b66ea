"""What the worker does with the model.

Who wants vectors, or uses near to one, joins the texts that are being read, and is answered when
its own are. What is to be scored is one run of the model for all requests in a batch.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from elmore.embed.continuous import ActiveSequence, ContinuousBatcher
from elmore.embed.embedder import Embedder
from elmore.embed.outputs import LayerChoice, select_layers
from elmore.lm import scoring
from elmore.lm.scoring import Scores
from elmore.probe.neighbors import Neighbor

EMBED, SCORE, SEARCH = "embed", "score", "search"


class Index(Protocol):
    """An index of the uses of words, as `elmore neighbors` builds it."""

    @property
    def layer(self) -> LayerChoice:
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
    layers: LayerChoice


class Search(NamedTuple):
    """A use to compare with others."""

    tokens: list[str]
    position: int
    k: int


class Engine:
    """A model, and an index where there is one. One thread at a time works with it."""

    def __init__(self, embedder: Embedder, uses: Uses | None = None) -> None:
        self.embedder, self.uses = embedder, uses
        self._batch = ContinuousBatcher(embedder.runtime)
        self._reading: dict[int, tuple[Reading | Search, list[ActiveSequence]]] = {}

    @property
    def can_score(self) -> bool:
        """Whether the model says how likely words are."""
        bundle = self.embedder.bundle
        return bundle.softmax is not None and bundle.vocabulary is not None

    def flows(self, kind: Hashable) -> bool:
        """Say whether work of this kind joins what is being read."""
        return kind != SCORE

    def run(self, kind: Hashable, works: Sequence[list[list[str]]]) -> list[list[Scores]]:
        """Score the texts of all works together; one result for each."""
        assert kind == SCORE  # the one kind that does not flow
        texts = [words for work in works for words in work]
        found = iter(scoring.score_batch(self.embedder.bundle, texts))
        return [list(islice(found, len(work))) for work in works]

    def join(self, works: Mapping[int, Reading | Search]) -> None:
        """Begin to read what numbered works are about."""
        texts = [
            [work.tokens] if isinstance(work, Search) else work.texts for work in works.values()
        ]
        for (number, work), rows in zip(works.items(), self._batch.add(texts), strict=True):
            self._reading[number] = work, rows

    def leave(self, numbers: Sequence[int]) -> None:
        """Read no more for these."""
        gone = [self._reading.pop(number)[1] for number in numbers if number in self._reading]
        self._batch.cancel([row for rows in gone for row in rows])

    def advance(self) -> dict[int, Any]:
        """Read on a little; give the results, or what they failed of, of what is read by now."""
        self._batch.step()
        done = [
            number
            for number, (_, rows) in self._reading.items()
            if not any(row.num_left for row in rows)
        ]
        return {number: self._result(*self._reading.pop(number)) for number in done}

    def _result(self, work: Reading | Search, rows: list[ActiveSequence]) -> Any:  # noqa: ANN401
        try:
            if isinstance(work, Reading):
                return [_vectors(row, work.layers) for row in rows]
            assert self.uses is not None
            index = self.uses.index
            return index.like(_vectors(rows[0], index.layer)[work.position], work.tokens, work.k)
        except Exception as error:
            return error


def _vectors(row: ActiveSequence, layers: LayerChoice) -> Float[np.ndarray, "*L T D"]:
    chosen = select_layers(row.layers, layers).float().cpu()
    if chosen.untyped_storage().nbytes() > chosen.nbytes:  # one layer would keep all in memory
        chosen = chosen.clone()
    return chosen.numpy()
