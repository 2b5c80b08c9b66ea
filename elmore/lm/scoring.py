"""Log-probabilities of words under a language model.

Shapes: T tokens of a sentence, D width of one direction.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.errors import DataError
from elmore.lm.word_softmax import WordSoftmax
from elmore.text.characters import check_tokens, encode_batch
from elmore.text.vocabulary import Vocabulary
from elmore.weights.bundle import Bundle

_MAX_PADDED = 4096  # tokens of a batch, padding included


class Scores(NamedTuple):
    """Natural logarithms of probabilities, one per token."""

    tokens: list[str]
    forward: Float[np.ndarray, " T"]
    """Given all tokens before."""
    backward: Float[np.ndarray, " T"]
    """Given all tokens after."""
    known: list[bool]
    """Whether the softmax knows the word; unknown words are scored as `<UNK>`."""


def score(bundle: Bundle, sentences: Iterable[Sequence[str]]) -> Iterator[Scores]:
    """Score tokenized sentences one by one."""
    for sentence in sentences:
        yield from score_batch(bundle, [sentence])


def score_batch(bundle: Bundle, sentences: Sequence[Sequence[str]]) -> list[Scores]:
    """Score tokenized sentences together, which is faster; each is scored independently.

    Raises:
        DataError: The model has no softmax.
    """
    vocabulary, softmax = require_softmax(bundle)
    scores = [Scores([], np.zeros(0), np.zeros(0), [])] * len(sentences)
    for group in group_by_length(sentences):
        words = [sentences[i] for i in group]
        targets = vocabulary.ids_in_text(word for part in words for word in part)
        pairs = context_states(bundle, words)
        forward, backward = (
            -softmax.nll(states, targets).astype(np.float64)
            for states in map(np.concatenate, zip(*pairs, strict=True))
        )
        ends = np.cumsum([len(part) for part in words])[:-1]
        split = zip(np.split(forward, ends), np.split(backward, ends), strict=True)
        for i, part, (before, after) in zip(group, words, split, strict=True):
            known = [word in vocabulary and word not in vocabulary.marks for word in part]
            scores[i] = Scores(list(part), before, after, known)
    return scores


def group_by_length(sentences: Sequence[Sequence[str]]) -> Iterator[list[int]]:
    """Group sentences of similar length, so that batches are small and have little padding."""
    group: list[int] = []
    for i in sorted(range(len(sentences)), key=lambda i: len(sentences[i])):
        if group and (len(group) + 1) * (len(sentences[i]) + 2) > _MAX_PADDED:
            yield group
            group = []
        if len(sentences[i]):
            group.append(i)
    if group:
        yield group


def check_softmax_file(bundle: Bundle) -> None:
    """Raise DataError if the softmax of a model was left out of its folder."""
    if bundle.lacks_softmax:
        name = bundle.card.name or "this model"
        raise DataError(
            f"{name} was loaded without its softmax, so it can embed but not predict words; put "
            "the model's softmax.safetensors beside its model.safetensors"
        )


def require_softmax(bundle: Bundle, *, fast: bool = False) -> tuple[Vocabulary, WordSoftmax]:
    """Return the vocabulary and softmax of a model, with `fast` as `WordSoftmax` has it.

    Raises:
        DataError: The model has none, or its folder lacks it.
    """
    check_softmax_file(bundle)
    if bundle.softmax is None or bundle.vocabulary is None:
        name = bundle.card.name or "this model"
        raise DataError(
            f"{name} has no softmax, so it cannot compute word probabilities; published weights "
            "come without one: train it with 'elmore finetune'"
        )
    return bundle.vocabulary, WordSoftmax(bundle.softmax, fast=fast)


def context_states(
    bundle: Bundle, sentences: Sequence[Sequence[str]]
) -> Iterator[tuple[Float[np.ndarray, "T D"], Float[np.ndarray, "T D"]]]:
    """Yield for each sentence the top states before and after each token."""
    for sentence in sentences:
        check_tokens(sentence)
    width = bundle.config.lstm.output_dim
    for states, sentence in zip(_top_layer(bundle, sentences), sentences, strict=True):
        inside = states[: len(sentence) + 2]  # includes <S> and </S>
        yield inside[:-2, :width], inside[2:, width:]


def _top_layer(bundle: Bundle, sentences: Sequence[Sequence[str]]) -> Float[np.ndarray, "B T 2*D"]:
    native = bundle.model.pack()
    if native is not None:
        stack, _ = native.run(*encode_batch(bundle.alphabet, sentences))
        return stack.states[-1]
    import torch

    with torch.no_grad():
        stack, _ = bundle.run(sentences)
        return stack.states[-1].float().cpu().numpy()
