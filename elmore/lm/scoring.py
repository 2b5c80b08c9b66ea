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

_PADDED = 4096  # tokens of a batch, padding included


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
    for sentence in sentences:
        yield from score_together(bundle, [sentence])


def score_together(bundle: Bundle, sentences: Sequence[Sequence[str]]) -> list[Scores]:
    """Score tokenised sentences, each on its own, side by side: quicker where there are several."""
    vocabulary, softmax = language_model(bundle)
    found = [Scores([], np.zeros(0), np.zeros(0), [])] * len(sentences)
    for group in _alike(sentences):
        # A word that is written like a mark is an unknown word, as it is in a prepared text.
        words = [
            [
                vocabulary.marks.unknown if word in vocabulary.marks else word
                for word in sentences[i]
            ]
            for i in group
        ]
        targets = torch.from_numpy(vocabulary.ids([word for part in words for word in part]))
        with torch.no_grad():
            pairs = around(bundle, [sentences[i] for i in group])
            forward, backward = (
                -softmax.nll(states, targets.to(states.device)).cpu().double().numpy()
                for states in map(torch.cat, zip(*pairs, strict=True))
            )
        ends = np.cumsum([len(part) for part in words])[:-1]
        scores = zip(np.split(forward, ends), np.split(backward, ends), strict=True)
        for i, part, (before, after) in zip(group, words, scores, strict=True):
            known = [word in vocabulary and word not in vocabulary.marks for word in part]
            found[i] = Scores(list(sentences[i]), before, after, known)
    return found


def _alike(sentences: Sequence[Sequence[str]]) -> Iterator[list[int]]:
    """Put sentences of like length together, so that a batch is small and little of it padding."""
    group: list[int] = []
    for i in sorted(range(len(sentences)), key=lambda i: len(sentences[i])):
        if group and (len(group) + 1) * (len(sentences[i]) + 2) > _PADDED:
            yield group
            group = []
        if len(sentences[i]):
            group.append(i)
    if group:
        yield group


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
    bundle: Bundle, sentences: Sequence[Sequence[str]]
) -> Iterator[tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]]:
    """Give for each token what stands before it and what after, as the top layers know them."""
    for sentence in sentences:
        check_tokens(sentence)
    stack, _ = bundle.run(sentences)
    for states, sentence in zip(stack.states[-1], sentences, strict=True):
        forward, backward = states[: len(sentence) + 2].chunk(2, dim=1)  # boundaries included
        yield forward[:-2], backward[2:]
