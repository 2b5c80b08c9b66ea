"""The vectors that words would have in the place of a word of a sentence.

A token's forward half depends on the tokens before it, its backward half on those after it. So the
rest of the sentence is run once, and each candidate continues from the two states around it.

Shapes: K candidates, L layers with the token layer, D width of one direction.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from elmore.errors import DataError
from elmore.model.layer_stack import LayerStack
from elmore.model.state import BACKWARD, FORWARD, BiLMState
from elmore.text.characters import NO_TOKEN, TokenIds, encode_batch
from elmore.weights.bundle import Bundle


def substitution_cosines(
    bundle: Bundle, sentence: Sequence[str], position: int, candidates: Sequence[Sequence[str]]
) -> Float[np.ndarray, "L+1 K"]:
    """Return the cosines of candidates in the place of a word with the word itself.

    There is a row for each layer, and the last one is for the average of the layers.
    """
    words = [[sentence[position]], *candidates]
    vectors = embed_substitutes(bundle, sentence, position, words)  # (K + 1, L, 2 * D)
    vectors = np.concatenate([vectors, vectors.mean(axis=1, keepdims=True)], axis=1)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    return np.einsum("kld,ld->lk", vectors[1:], vectors[0])


def embed_substitutes(
    bundle: Bundle, sentence: Sequence[str], position: int, candidates: Sequence[Sequence[str]]
) -> Float[np.ndarray, "K L 2*D"]:
    """Return the vectors of candidates in the place of a word, equal to those of whole sentences.

    Args:
        bundle: The model.
        sentence: The tokens.
        position: Position of the word that is replaced, from 0.
        candidates: One or more tokens each; several have the mean of their vectors.

    Raises:
        DataError: The position is outside the sentence, or a candidate has no tokens.
    """
    if not 0 <= position < len(sentence):
        raise DataError(f"position {position} is outside a sentence of {len(sentence)} tokens")
    for number, candidate in enumerate(candidates):
        if not candidate:
            raise DataError(f"candidate {number} has no tokens; pass one or more")
    state = _state_around(bundle, sentence, position)
    rows = [0] * len(candidates)
    index, *words = encode_batch(bundle.alphabet, candidates)
    index = index[:, 1:]  # without <S>
    for row, candidate in zip(index, candidates, strict=True):
        row[len(candidate) :] = NO_TOKEN  # nor </S>
    repeated = BiLMState(*(part[:, :, None][:, :, rows] for part in state))
    stack, _ = _run(bundle, TokenIds(index, *words), repeated)
    sums = _to_numpy(stack.states).sum(axis=2)  # (L, K, 2 * D): padding is zero
    return np.swapaxes(sums, 0, 1) / np.array([len(each) for each in candidates])[:, None, None]


def _state_around(bundle: Bundle, sentence: Sequence[str], position: int) -> BiLMState:
    """Return the forward state before a position and the backward one after it, without rows."""
    before, after = sentence[:position], sentence[position + 1 :]
    index, *words = encode_batch(bundle.alphabet, [before, after])
    index[0, len(before) + 1 :] = NO_TOKEN  # <S> and the tokens before
    index[1] = np.append(index[1, 1:], NO_TOKEN)  # the tokens after and </S>
    _, state = _run(bundle, TokenIds(index, *words))
    directions = [FORWARD, BACKWARD]
    return BiLMState(*(part[directions, :, directions] for part in state))


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
