"""The vectors that words would have in the place of a word of a sentence.

A token's forward half depends on the tokens before it, its backward half on those after it. So the
rest of the sentence is run once, and each candidate continues from the two states around it.

Shapes: N replacements, K candidates, L layers with the token layer, D width of one direction.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.errors import DataError
from elmore.model.layer_stack import LayerStack
from elmore.model.state import BACKWARD, FORWARD, BiLMState
from elmore.text.characters import NO_TOKEN, TokenIds, encode_batch
from elmore.weights.bundle import Bundle

_GROUP = 16  # sentences of similar lengths that are run together
_MAX_CANDIDATES = 256  # that are run together, which bounds the memory


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
    if not replacements:
        return []
    counts = [len(each.candidates) for each in replacements]
    numbers = np.repeat(np.arange(len(counts)), counts)
    candidates = [candidate for each in replacements for candidate in each.candidates]
    lengths = np.array([len(candidate) for candidate in candidates])
    around = _states_around(bundle, replacements)
    config = bundle.config
    vectors = np.empty((len(candidates), config.num_layers, 2 * config.lstm.output_dim), "f4")
    for length in np.unique(lengths):  # together: no row waits for a longer one
        (same,) = np.nonzero(lengths == length)
        for some in np.array_split(same, -(-len(same) // _MAX_CANDIDATES)):
            index, *words = encode_batch(bundle.alphabet, [candidates[row] for row in some])
            states = BiLMState(*(part[:, :, numbers[some]] for part in around))
            inside = TokenIds(index[:, 1:-1], *words)  # without <S> and </S>
            stack, _ = _run(bundle, inside, states)
            vectors[some] = _to_numpy(stack.states).mean(axis=2).swapaxes(0, 1)  # (K, L, 2 * D)
    return np.split(vectors, np.cumsum(counts)[:-1])


def _states_around(bundle: Bundle, replacements: Sequence[Replacement]) -> BiLMState:
    """Return forward states before the words and backward ones after them, a row for each."""
    before = [sentence[:position] for sentence, position, _ in replacements]
    after = [sentence[position + 1 :] for sentence, position, _ in replacements]
    sides = [_states_of_side(bundle, FORWARD, before), _states_of_side(bundle, BACKWARD, after)]
    return BiLMState(*map(np.stack, zip(*sides, strict=True)))


def _states_of_side(
    bundle: Bundle, direction: int, sides: Sequence[Sequence[str]]
) -> tuple[Float[np.ndarray, "L N D"], Float[np.ndarray, "L N H"]]:
    """Return outputs and cells after tokens and the boundary that they begin with."""
    order = np.argsort([len(side) for side in sides], kind="stable")
    parts = []
    for first in range(0, len(order), _GROUP):
        some = [sides[row] for row in order[first : first + _GROUP]]
        index, *words = encode_batch(bundle.alphabet, some)
        if direction == FORWARD:
            for row, side in zip(index, some, strict=True):
                row[len(side) + 1 :] = NO_TOKEN  # without </S>
        else:
            index = index[:, 1:]  # without <S>
        parts.append(_run_to_end(bundle, direction, TokenIds(index, *words)))
    back = np.argsort(order)
    outputs, cells = (np.concatenate(each, axis=1)[:, back] for each in zip(*parts, strict=True))
    return outputs, cells


def _run_to_end(
    bundle: Bundle, direction: int, ids: TokenIds
) -> tuple[Float[np.ndarray, "L B D"], Float[np.ndarray, "L B H"]]:
    native = bundle.model.pack()
    if native is None:
        _, state = _run(bundle, ids)
        return _to_numpy(state.output[direction]), _to_numpy(state.cell[direction])
    layers = native.run_to_end(direction, *ids)
    return np.stack([end.output for end in layers]), np.stack([end.cell for end in layers])


def _run(
    bundle: Bundle, ids: TokenIds, state: BiLMState | None = None
) -> tuple[LayerStack, BiLMState]:
    native = bundle.model.pack()
    if native is not None:
        return native.run(*ids, state=state)
    import torch

    weight = next(bundle.model.parameters())
    tensors = [None if part is None else torch.from_numpy(part).to(weight.device) for part in ids]
    if state is not None:
        state = BiLMState(*(torch.from_numpy(part).to(weight) for part in state))
    with torch.no_grad():
        return bundle.model(*tensors, state=state, training=False)


def _to_numpy(states: Any) -> Float[np.ndarray, "..."]:  # noqa: ANN401 -- torch may not be installed
    return states if isinstance(states, np.ndarray) else states.float().cpu().numpy()
