"""The words that a language model predicts at a position of a sentence.

The forward direction predicts from the tokens before the position, the backward one from those
after it, `both` from all of them (`joint_prediction`). What fits the place need not mean the same.
So the best of `both` may be ranked again by how close their vectors in the place of the word are to
its own (layer 1, the first of the LSTM):

    reranked(v)  ~  both(v) exp(40 cos(vector(v), vector(word)))

The factor is the best of 5, 10, 20 and 40 on the development set of Swords.

Shapes: P positions, V words.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.errors import ConfigError, DataError
from elmore.lm.joint_prediction import combine_directions
from elmore.lm.scoring import context_states, require_softmax
from elmore.lm.substitution_vectors import Replacement, compare_replacements
from elmore.model.state import BOTH
from elmore.text.vocabulary import Vocabulary
from elmore.weights.bundle import Bundle

COSINE_FACTOR = 40
"""How much the cosine with the word counts beside the log-probability of a substitute."""

_NUM_RERANKED = 50  # or twice as many as are asked for
_RERANKED_LAYER = 1
_CHUNK = 64  # positions, whose distributions over all words are held at a time

RankedWords = list[tuple[str, float]]
"""Words with the natural logarithms of their probabilities, most probable first."""


class Place(NamedTuple):
    """A word of a tokenized sentence, by its position from 0."""

    sentence: Sequence[str]
    position: int


class Substitutes(NamedTuple):
    """The most probable words at one position."""

    position: int
    forward: RankedWords
    """With the probabilities that `scoring.score` returns."""
    backward: RankedWords
    both: RankedWords
    """These sum to one over all words, unknown ones included."""
    reranked: RankedWords | None = None
    """By closeness to the word too, which is left out; these sum to one over what was reranked."""


def predict_substitutes(
    bundle: Bundle,
    sentence: Sequence[str],
    positions: Sequence[int] | None = None,
    *,
    count: int = 10,
    rerank: bool = False,
) -> Iterator[Substitutes]:
    """Yield the most probable words at positions of a tokenized sentence.

    Args:
        bundle: A model with a softmax.
        sentence: The tokens.
        positions: Positions of tokens, negative ones from the end; by default all.
        count: Number of words per position.
        rerank: Rank the best of `both` again by the closeness of their vectors to that of the word.

    Raises:
        DataError: The model has no softmax, or a position is outside the sentence.
    """
    if count < 1:
        raise ConfigError(f"the number of substitutes must be at least 1, found {count}")
    indices = list(range(len(sentence)) if positions is None else positions)
    for position in indices:
        if not -len(sentence) <= position < len(sentence):
            raise DataError(f"position {position} is outside a sentence of {len(sentence)} tokens")
    places = [Place(sentence, position % len(sentence)) for position in indices]
    yield from predict_at_places(bundle, places, count=count, rerank=rerank)


def predict_at_places(
    bundle: Bundle, places: Sequence[Place], *, count: int, rerank: bool
) -> Iterator[Substitutes]:
    """Yield the `predict_substitutes` of places of several sentences, which are run together."""
    vocabulary, softmax = require_softmax(bundle)
    if not places:
        return
    sentences = {id(sentence): sentence for sentence, _ in places}
    states = dict(zip(sentences, context_states(bundle, [*sentences.values()]), strict=True))
    for first in range(0, len(places), _CHUNK):
        chunk = places[first : first + _CHUNK]
        forward, backward = (
            softmax.log_probs(np.stack([states[id(words)][side][at] for words, at in chunk]))
            for side in BOTH
        )
        both = combine_directions(vocabulary, forward, backward)
        ranked = [_rank_words(vocabulary, each, count) for each in (forward, backward)]
        pools = _rank_words(vocabulary, both, max(2 * count, _NUM_RERANKED) if rerank else count)
        reranked = _rerank(bundle, chunk, pools) if rerank else [None] * len(chunk)
        for place, before, after, pool, best in zip(chunk, *ranked, pools, reranked, strict=True):
            yield Substitutes(
                place.position, before, after, pool[:count], None if best is None else best[:count]
            )


def _rank_words(
    vocabulary: Vocabulary,
    log_probs: Float[np.ndarray, "P V"],
    count: int,
) -> list[RankedWords]:
    """Return the most probable words of each position, without marks."""
    words = log_probs.copy()
    words[:, vocabulary.ids(vocabulary.marks)] = -np.inf
    count = min(count, len(vocabulary) - len(vocabulary.marks))
    some = np.argpartition(-words, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(words, some, axis=1), axis=1, kind="stable")
    best = np.take_along_axis(some, order, axis=1)
    return [
        [(vocabulary.words[word], values[word].item()) for word in ids]
        for ids, values in zip(best.tolist(), words, strict=True)
    ]


def _rerank(
    bundle: Bundle, places: Sequence[Place], pools: Sequence[RankedWords]
) -> list[RankedWords]:
    """Rank pools again by closeness too, without the words themselves, in upper or lower case."""
    replacements, log_probs = [], []
    for (sentence, position), pool in zip(places, pools, strict=True):
        word = sentence[position].lower()
        others = [(other, value) for other, value in pool if other.lower() != word]
        replacements.append(Replacement(sentence, position, [[other] for other, _ in others]))
        log_probs.append(np.array([value for _, value in others]))
    result = []
    for each, cosines, values in zip(
        replacements, compare_replacements(bundle, replacements), log_probs, strict=True
    ):
        closer = values + COSINE_FACTOR * cosines[_RERANKED_LAYER]
        closer -= np.logaddexp.reduce(closer)
        order = np.argsort(-closer, kind="stable")
        result.append([(each.candidates[i][0], closer[i].item()) for i in order])
    return result
