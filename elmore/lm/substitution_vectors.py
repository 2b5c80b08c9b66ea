"""The vectors that words would have in the place of a word of a sentence.

A token's forward half depends on the tokens before it, its backward half on those after it. So the
rest of the sentence is run once, and each candidate continues from the two states around it.

Shapes: N replacements, K candidates, L layers with the token layer, D width of one direction.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from elmore.errors import DataError
from elmore.model.layer_stack import LayerStack
from elmore.model.state import BACKWARD, FORWARD, BiLMState
from elmore.text.characters import NO_TOKEN, TokenIds, encode_batch
from elmore.weights.bundle import Bundle


class Replacement(NamedTuple):
    """Candidates for the place of a word of a sentence."""

    sentence: Sequence[str]
    position: int
    """Position of the word that is replaced, from 0."""
    candidates: Sequence[Sequence[str]]
    """One or more tokens each."""


def substitution_cosines(
    bundle: Bundle, sentence: Sequence[str], position: int, candidates: Sequence[Sequence[str]]
) -> Float[np.ndarray, "L+1 K"]:
    """Return the cosines of candidates in the place of a word with the word itself.

    There is a row for each layer, and the last one is for the average of the layers.
    """
    (cosines,) = compare_replacements(bundle, [Replacement(sentence, position, candidates)])
    return cosines


def compare_replacements(
    bundle: Bundle, replacements: Sequence[Replacement]
) -> list[Float[np.ndarray, "L+1 K"]]:
    """Return the `substitution_cosines` of each replacement."""
    with_words = [
        Replacement(sentence, position, [sentence[position : position + 1], *candidates])
        for sentence, position, candidates in replacements
    ]
    cosines = []
    for vectors in embed_replacements(bundle, with_words):  # (K + 1, L, 2 * D)
        averages = vectors.mean(axis=1, keepdims=True)
        unit = np.concatenate([vectors, averages], axis=1)
        unit /= np.linalg.norm(unit, axis=2, keepdims=True)
        cosines.append(np.einsum("kld,ld->lk", unit[1:], unit[0]))
    return cosines


def embed_replacements(
    bundle: Bundle, replacements: Sequence[Replacement]
) -> list[Float[np.ndarray, "K L 2*D"]]:
    """Return the vectors of candidates in the place of a word, equal to those of whole sentences.

    A candidate of several tokens has the mean of their vectors. All replacements are run together.

    Raises:
        DataError: A position is outside its sentence, or a candidate has no tokens.
    """
    for sentence, position, candidates in replacements:
        if not 0 <= position < len(sentence):
            raise DataError(f"position {position} is outside a sentence of {len(sentence)} tokens")
        for number, candidate in enumerate(candidates):
            if not candidate:
                raise DataError(f"candidate {number} has no tokens; pass one or more")
    counts = [len(each.candidates) for each in replacements]
    candidates = [candidate for each in replacements for candidate in each.candidates]
    index, *words = encode_batch(bundle.alphabet, candidates)
    index = index[:, 1:]  # without <S>
    for row, candidate in zip(index, candidates, strict=True):
        row[len(candidate) :] = NO_TOKEN  # nor </S>
    states = _states_around(bundle, replacements, np.repeat(np.arange(len(counts)), counts))
    stack, _ = _run(bundle, TokenIds(index, *words), states)
    sums = _to_numpy(stack.states).sum(axis=2)  # (L, K of all, 2 * D): padding is zero
    means = np.swapaxes(sums, 0, 1) / np.array([len(each) for each in candidates])[:, None, None]
    return np.split(means, np.cumsum(counts)[:-1])


def _states_around(
    bundle: Bundle, replacements: Sequence[Replacement], rows: Int[np.ndarray, " R"]
) -> BiLMState:
    """Return forward states before the words and backward ones after them, for rows of numbers."""
    before = [sentence[:position] for sentence, position, _ in replacements]
    after = [sentence[position + 1 :] for sentence, position, _ in replacements]
    index, *words = encode_batch(bundle.alphabet, [*before, *after])
    for row, tokens in zip(index, before, strict=False):
        row[len(tokens) + 1 :] = NO_TOKEN  # <S> and the tokens before
    index[len(before) :, :-1] = index[len(before) :, 1:]  # the tokens after and </S>
    index[len(before) :, -1] = NO_TOKEN
    _, state = _run(bundle, TokenIds(index, *words))
    directions = [[FORWARD], [BACKWARD]]
    both = [rows.tolist(), (rows + len(before)).tolist()]
    return BiLMState(*(part[directions, :, both].swapaxes(1, 2) for part in state))


def _run(
    bundle: Bundle, ids: TokenIds, state: BiLMState | None = None
) -> tuple[LayerStack, BiLMState]:
    native = bundle.model.pack()
    if native is not None:
        return native.run(*ids, state=state)
    import torch

    device = next(bundle.model.parameters()).device
    tensors = [None if part is None else torch.from_numpy(part).to(device) for part in ids]
    with torch.no_grad():
        return bundle.model(*tensors, state=state, training=False)


def _to_numpy(states: Any) -> Float[np.ndarray, "..."]:  # noqa: ANN401 -- torch may not be installed
    return states if isinstance(states, np.ndarray) else states.float().cpu().numpy()
