"""The words that a language model predicts at a position of a sentence.

The forward direction predicts from the tokens before the position, the backward one from those
after it. `both` is the product of their probabilities, normalised over all words but the marks.

Shapes: P positions, V words.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.errors import ConfigError, DataError
from elmore.lm.scoring import context_states, require_softmax
from elmore.text.vocabulary import Vocabulary
from elmore.weights.bundle import Bundle

_CHUNK = 64  # positions, whose distributions over all words are held at a time

RankedWords = list[tuple[str, float]]
"""Words with the natural logarithms of their probabilities, most probable first."""


class Substitutes(NamedTuple):
    """The most probable words at one position."""

    position: int
    forward: RankedWords
    """With the probabilities that `scoring.score` returns."""
    backward: RankedWords
    both: RankedWords
    """These sum to one over all words but the marks."""


def predict_substitutes(
    bundle: Bundle,
    sentence: Sequence[str],
    positions: Sequence[int] | None = None,
    *,
    count: int = 10,
) -> Iterator[Substitutes]:
    """Yield the most probable words at positions of a tokenized sentence.

    Args:
        bundle: A model with a softmax.
        sentence: The tokens.
        positions: Positions of tokens, negative ones from the end; by default all.
        count: Number of words per position.

    Raises:
        DataError: The model has no softmax, or a position is outside the sentence.
    """
    if count < 1:
        raise ConfigError(f"the number of substitutes must be at least 1, found {count}")
    vocabulary, softmax = require_softmax(bundle)
    indices = list(range(len(sentence)) if positions is None else positions)
    for position in indices:
        if not -len(sentence) <= position < len(sentence):
            raise DataError(f"position {position} is outside a sentence of {len(sentence)} tokens")
    if not indices:
        return
    (states,) = context_states(bundle, [sentence])
    for first in range(0, len(indices), _CHUNK):
        chunk = indices[first : first + _CHUNK]
        forward, backward = (softmax.log_probs(direction[chunk]) for direction in states)
        ranked = (
            _rank_words(vocabulary, forward, count),
            _rank_words(vocabulary, backward, count),
            _rank_words(vocabulary, forward + backward, count, normalize=True),
        )
        for position, *three in zip(chunk, *ranked, strict=True):
            yield Substitutes(position % len(sentence), *three)


def _rank_words(
    vocabulary: Vocabulary,
    log_probs: Float[np.ndarray, "P V"],
    count: int,
    *,
    normalize: bool = False,
) -> list[RankedWords]:
    """Return the most probable words of each position, without marks."""
    words = log_probs.copy()
    words[:, vocabulary.ids(vocabulary.marks)] = -np.inf
    if normalize:
        words -= np.logaddexp.reduce(words, axis=1, keepdims=True)
    count = min(count, len(vocabulary) - len(vocabulary.marks))
    some = np.argpartition(-words, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(words, some, axis=1), axis=1, kind="stable")
    best = np.take_along_axis(some, order, axis=1)
    return [
        [(vocabulary.words[word], values[word].item()) for word in ids]
        for ids, values in zip(best.tolist(), words, strict=True)
    ]
