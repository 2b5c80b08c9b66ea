"""Which words a language model would have put in the place of another.

The forward direction knows what stands before the place, the backward one what stands after; each
has an opinion of its own. The product of their probabilities, over all words but the marks, is the
opinion of both.

Shapes: P places, V words.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.errors import ConfigError, DataError
from elmore.lm.scoring import around, language_model
from elmore.text.vocabulary import Vocabulary
from elmore.weights.bundle import Bundle

_AT_ONCE = 64  # places, whose opinions of every word are held at a time

Likely = list[tuple[str, float]]
"""Words with the natural logarithms of their probabilities, the likeliest first."""


class Substitutes(NamedTuple):
    """The likeliest words in one place."""

    place: int
    forward: Likely
    """Their probabilities are those that `scoring.score` gives."""
    backward: Likely
    both: Likely
    """These sum to one over all words but the marks."""


def substitutes(
    bundle: Bundle,
    sentence: Sequence[str],
    places: Sequence[int] | None = None,
    *,
    count: int = 10,
) -> Iterator[Substitutes]:
    """Give the likeliest words in some places of a tokenised sentence, or in every place."""
    if count < 1:
        raise ConfigError(f"the number of substitutes must be at least 1, found {count}")
    vocabulary, softmax = language_model(bundle)
    wanted = list(range(len(sentence)) if places is None else places)
    for place in wanted:
        if not -len(sentence) <= place < len(sentence):
            raise DataError(f"place {place} is outside a sentence of {len(sentence)} tokens")
    if not wanted:
        return
    with torch.no_grad():
        (states,) = around(bundle, [sentence])
        for first in range(0, len(wanted), _AT_ONCE):
            some = wanted[first : first + _AT_ONCE]
            forward, backward = (softmax.log_probs(way[some]) for way in states)  # (P, V)
            listed = (
                _likeliest(vocabulary, forward, count),
                _likeliest(vocabulary, backward, count),
                _likeliest(vocabulary, forward + backward, count, evened=True),
            )
            for place, *three in zip(some, *listed, strict=True):
                yield Substitutes(place % len(sentence), *three)


def _likeliest(
    vocabulary: Vocabulary, opinion: Float[Tensor, "P V"], count: int, *, evened: bool = False
) -> list[Likely]:
    """Give the first words of each place, never a mark; `evened`: they are to sum to one."""
    marks = torch.from_numpy(vocabulary.ids(vocabulary.marks)).to(opinion.device)
    words = opinion.index_fill(1, marks, -torch.inf)
    if evened:
        words = words.log_softmax(dim=1)
    best = words.topk(min(count, len(vocabulary) - len(vocabulary.marks)), dim=1)
    return [
        [(vocabulary.words[word], value) for word, value in zip(ids, values, strict=True)]
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
