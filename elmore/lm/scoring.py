"""What a language model says of each word: how likely it was, and what could stand in its place.

Shapes: T tokens of a sentence, V words.
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
                for states in _around(bundle, sentence)
            )
        known = [word in vocabulary and word not in vocabulary.marks for word in words]
        yield Scores(list(sentence), forward, backward, known)


def substitutes(
    bundle: Bundle, sentence: Sequence[str], position: int, *, count: int = 10
) -> list[tuple[str, float]]:
    """Give the words most likely in one place, as both directions together see it.

    Each direction has an opinion of its own; the product of their probabilities, over all words
    but the marks, is the opinion of both.
    """
    vocabulary, softmax = language_model(bundle)
    if not -len(sentence) <= position < len(sentence):
        raise DataError(f"position {position} is outside a sentence of {len(sentence)} tokens")
    with torch.no_grad(), bundle.without_dropout():
        ways = [softmax.log_probs(states[[position]])[0] for states in _around(bundle, sentence)]
    together = ways[0] + ways[1]  # (V,)
    together[torch.from_numpy(vocabulary.ids(vocabulary.marks)).to(together.device)] = -torch.inf
    best = together.log_softmax(dim=0).topk(min(count, len(vocabulary) - len(vocabulary.marks)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(vocabulary.words[word], value) for word, value in pairs]


def language_model(bundle: Bundle) -> tuple[Vocabulary, Softmax | AdaptiveSoftmax]:
    """Give what predicts words; many models have only what reads them."""
    if bundle.softmax is None or bundle.vocabulary is None:
        name = bundle.card.name or "this model"
        raise DataError(
            f"{name} has no softmax, so it cannot say how likely words are; published weights come "
            "without: learn one with 'elmore finetune'"
        )
    return bundle.vocabulary, bundle.softmax


def _around(
    bundle: Bundle, sentence: Sequence[str]
) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]:
    """Give for each token what stands before it and what after, as the top layers know them."""
    check_tokens(sentence)
    stack, _ = bundle.run([sentence])
    forward, backward = stack.states[-1, 0].chunk(2, dim=1)  # boundaries included
    return forward[:-2], backward[2:]
