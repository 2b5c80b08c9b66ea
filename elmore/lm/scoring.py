"""What a language model says of each word: how likely it was.

Shapes: T tokens of a sentence, D width of one direction.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.errors import DataError
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.text.characters import check_tokens
from elmore.text.vocabulary import Vocabulary
from elmore.weights.bundle import Bundle


class Scores(NamedTuple):
    """Natural logarithms of probabilities, one per token."""

    tokens: list[str]
    forward: Float[np.ndarray, " T"]
    """Given all that stands before."""
    backward: Float[np.ndarray, " T"]
    """Given all that stands after."""
    known: list[bool]
    """Whether the softmax knows the word; others are scored as `<UNK>`."""


def score(bundle: Bundle, sentences: Iterable[Sequence[str]]) -> Iterator[Scores]:
    """Score tokenised sentences, each on its own, one after another."""
    vocabulary, softmax = language_model(bundle)
    for sentence in sentences:
        if not len(sentence):
            yield Scores([], np.zeros(0), np.zeros(0), [])
            continue
        # A word that is written like a mark is an unknown word, as it is in a prepared text.
        words = [vocabulary.marks.unknown if w in vocabulary.marks else w for w in sentence]
        targets = torch.from_numpy(vocabulary.ids(words))
        with torch.no_grad(), bundle.without_dropout():
            forward, backward = (
                -softmax.nll(states, targets.to(states.device)).cpu().double().numpy()
                for states in around(bundle, sentence)
            )
        known = [word in vocabulary and word not in vocabulary.marks for word in words]
        yield Scores(list(sentence), forward, backward, known)


def language_model(bundle: Bundle) -> tuple[Vocabulary, Softmax | AdaptiveSoftmax]:
    """Give what predicts words; many models have only what reads them."""
    if bundle.softmax is None or bundle.vocabulary is None:
        name = bundle.card.name or "this model"
        raise DataError(
            f"{name} has no softmax, so it cannot say how likely words are; published weights come "
            "without: learn one with 'elmore finetune'"
        )
    return bundle.vocabulary, bundle.softmax


def around(
    bundle: Bundle, sentence: Sequence[str]
) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]:
    """Give for each token what stands before it and what after, as the top layers know them."""
    check_tokens(sentence)
    stack, _ = bundle.run([sentence])
    forward, backward = stack.states[-1, 0].chunk(2, dim=1)  # boundaries included
    return forward[:-2], backward[2:]
