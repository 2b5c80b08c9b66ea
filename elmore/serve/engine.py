"""What the worker thread runs: the model, and an index of word occurrences.

Requests for vectors and for neighbours join a continuous batch; each is complete when its own texts
are. Requests for scores are split into parts, and those of a batch are one run of the model. Those
for substitutes run one by one: a distribution over all words is large, and ranking it is no faster
in a batch.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from elmore.embed.continuous import ActiveSequence, ContinuousBatcher
from elmore.embed.embedder import Embedder
from elmore.embed.outputs import LayerChoice, layer_selector, resolve_layers, to_host
from elmore.lm import scoring
from elmore.lm.scoring import Scores
from elmore.lm.substitutes import Substitutes, predict_substitutes
from elmore.probe.neighbors.index import Neighbor

EMBED, SCORE, SEARCH, SUBSTITUTES = "embed", "score", "search", "substitutes"
# What the queue counts as one token: what costs as much as embedding one token of a long text with
# the bundled model on a CPU, in the default precision.
WORDS_PER_TOKEN = 7000
"""Words that are ranked."""
SCORED_WORDS_PER_TOKEN = 30_000
"""Words that a score is normalized over, in both directions."""
_PART_TOKENS = 256  # of a request for scores
OCCURRENCES_PER_TOKEN = 3500
"""Vectors of an index that are compared with a query."""
NEIGHBORS_PER_TOKEN = 25
"""Results of a search, whose sentences are read."""


class Index(Protocol):
    """An index of the occurrences of words, built by `elmore neighbors`."""

    @property
    def layer(self) -> LayerChoice:
        """The layer whose vectors are compared."""
        ...

    @property
    def search_cost(self) -> int:
        """The cost of a search, in exact comparisons of two vectors."""
        ...

    def search_vector(
        self, vector: Float[np.ndarray, " D"], tokens: list[str], k: int
    ) -> Sequence[Neighbor]:
        """Return the occurrences nearest to a word with this vector in this sentence."""
        ...


class EmbedWork(NamedTuple):
    """Tokenised texts to embed."""

    texts: list[list[str]]
    layers: LayerChoice


class SearchWork(NamedTuple):
    """A word in a sentence whose nearest occurrences are wanted."""

    tokens: list[str]
    position: int
    k: int

    def cost(self, search_cost: int) -> int:
        """Return its cost in tokens: those it reads, the search, and its results."""
        search = math.ceil(search_cost / OCCURRENCES_PER_TOKEN)
        return len(self.tokens) + 2 + search + math.ceil(self.k / NEIGHBORS_PER_TOKEN)


class SubstitutesWork(NamedTuple):
    """A position of a sentence whose most probable words are wanted."""

    tokens: list[str]
    position: int
    count: int

    def cost(self, num_words: int) -> int:
        """Return its cost in tokens: those it reads, and a ranking of all words of the softmax."""
        return len(self.tokens) + 2 + math.ceil(num_words / WORDS_PER_TOKEN)


def score_cost(texts: Sequence[Sequence[str]], num_words: int) -> int:
    """Return the cost of scores in tokens: those read, and for each a sum over `num_words`."""
    num_tokens = sum(len(words) + 2 for words in texts)
    return num_tokens * (1 + math.ceil(num_words / SCORED_WORDS_PER_TOKEN))


def split_scoring(texts: Sequence[list[str]], num_words: int) -> list[tuple[list[list[str]], int]]:
    """Split texts to score into parts with their costs, so that no batch has to hold all of them.

    A part is a text, or as many as cost little.
    """
    parts: list[tuple[list[list[str]], int]] = [([], 0)]
    for words in texts:
        part, cost = parts[-1]
        own = score_cost([words], num_words)
        if part and cost + own > _PART_TOKENS:
            parts.append(([words], own))
        else:
            parts[-1] = [*part, words], cost + own
    return parts


class Engine:
    """A model and perhaps an index; one thread at a time may call it."""

    def __init__(self, embedder: Embedder, index: Index | None = None) -> None:
        self.embedder, self.index = embedder, index
        self._runtime = embedder.runtime
        self._batch = ContinuousBatcher(self._runtime)
        self._requests: dict[int, tuple[EmbedWork | SearchWork, list[ActiveSequence]]] = {}

    @property
    def model_name(self) -> str:
        """The name of the model, as its card has it."""
        return self.embedder.bundle.card.name or "unnamed"

    @property
    def can_score(self) -> bool:
        """Whether the model has a softmax."""
        bundle = self.embedder.bundle
        return bundle.softmax is not None and bundle.vocabulary is not None

    def supports_batching(self, kind: Hashable) -> bool:
        """Return whether work of this kind takes less time in a batch."""
        return kind == SCORE

    def supports_continuous_batching(self, kind: Hashable) -> bool:
        """Return whether work of this kind joins the continuous batch."""
        return kind not in (SCORE, SUBSTITUTES)

    def run(self, kind: Hashable, works: Sequence[Any]) -> Sequence[Any]:
        """Run requests of a kind that is not continuous; return one result for each."""
        if kind == SUBSTITUTES:
            return [self._substitutes(work) for work in works]
        assert kind == SCORE
        return self._scores(works)

    def _scores(self, works: Sequence[list[list[str]]]) -> list[list[Scores]]:
        """Score the texts of all requests together."""
        texts = [words for work in works for words in work]
        scores = iter(scoring.score_batch(self.embedder.bundle, texts))
        return [list(islice(scores, len(work))) for work in works]

    def _substitutes(self, work: SubstitutesWork) -> Substitutes:
        (result,) = predict_substitutes(
            self.embedder.bundle, work.tokens, [work.position], count=work.count
        )
        return result

    def add(self, works: Mapping[int, EmbedWork | SearchWork]) -> None:
        """Add the texts of numbered requests to the continuous batch."""
        texts = [
            [work.tokens] if isinstance(work, SearchWork) else work.texts for work in works.values()
        ]
        for (number, work), rows in zip(works.items(), self._batch.add(texts), strict=True):
            self._requests[number] = work, rows

    def abort(self, numbers: Sequence[int]) -> None:
        """Remove requests from the continuous batch."""
        canceled = [self._requests.pop(number)[1] for number in numbers if number in self._requests]
        self._batch.cancel([row for rows in canceled for row in rows])

    def step(self) -> dict[int, Any]:
        """Run a few steps; return the results (or exceptions) of the complete requests."""
        self._batch.step()
        done = [
            number
            for number, (_, rows) in self._requests.items()
            if not any(row.num_left for row in rows)
        ]
        return {number: self._result(*self._requests.pop(number)) for number in done}

    def _result(self, work: EmbedWork | SearchWork, rows: list[ActiveSequence]) -> Any:  # noqa: ANN401
        try:
            if isinstance(work, EmbedWork):
                return [self._vectors(row, work.layers) for row in rows]
            assert self.index is not None
            vector = self._vectors(rows[0], self.index.layer)[work.position]
            return self.index.search_vector(vector, work.tokens, work.k)
        except Exception as error:
            return error

    def _vectors(
        self, sequence: ActiveSequence, layers: LayerChoice
    ) -> Float[np.ndarray, "*L T D"]:
        lengths = np.array([len(sequence.words)])
        sentence = self._runtime.sentence_layers(sequence.layers, lengths)
        embedder = self.embedder
        resolved = resolve_layers(layers, embedder.num_layers, embedder.whitening)
        select = layer_selector(resolved, "float32")
        selected = to_host(select(sentence))
        return selected if selected.base is None else selected.copy()  # a view keeps all layers
