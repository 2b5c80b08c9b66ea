"""The LSTM state that AllenNLP and bilm-tf carry from batch to batch, to reproduce their vectors.

The state belongs to a row of the batch, not to a sentence: row 3 starts in the state in which row 3
of the last batch ended. A smaller batch leaves the other rows unchanged; the additional rows of a
larger batch start from the initial state.

Shapes: L layers (the token layer is one of them), T tokens, D width of one direction.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Float

from elmore.embed.device import Array, Device
from elmore.embed.outputs import to_host
from elmore.embed.sentence_layers import SentenceLayers
from elmore.embed.tokenized import TokenizedText
from elmore.model.layer_stack import LayerStack
from elmore.model.state import BiLMState


class StatefulRows:
    """The states of the rows after the last batch."""

    def __init__(self) -> None:
        self.rows: BiLMState | None = None

    def load(self, start: BiLMState) -> BiLMState:
        """Return the stored rows, and for further rows those of `start`."""
        if self.rows is None:
            return start
        shared = min(start.cell.shape[2], self.rows.cell.shape[2])
        pairs = zip(self.rows, start, strict=True)
        return BiLMState(
            *(_join(old[:, :, :shared], new[:, :, shared:], new) for old, new in pairs)
        )

    def store(self, state: BiLMState) -> None:
        """Store the final states of the rows of a batch."""
        if self.rows is not None:
            used = state.cell.shape[2]
            pairs = zip(state, self.rows, strict=True)
            state = BiLMState(*(_join(new, old[:, :, used:], new) for new, old in pairs))
        is_numpy = isinstance(state.cell, np.ndarray)
        self.rows = state if is_numpy else BiLMState(*(part.detach() for part in state))


def _join(first: Array, second: Array, like: Array) -> Array:
    """Join rows of states, as arrays of one kind."""
    if isinstance(like, np.ndarray):
        return np.concatenate([first, second], axis=2)
    import torch

    return torch.cat([first.to(like), second.to(like)], dim=2)


def run_as_batch(
    run: Callable[[Sequence[Sequence[str]]], LayerStack],
    texts: Iterable[TokenizedText],
    select: Callable[[SentenceLayers], Array],
    device: Device,
) -> Iterator[tuple[TokenizedText, list[Float[np.ndarray, "*L T 2*D"]]]]:
    """Run all segments as the rows of one padded batch; yield each text with its vectors."""
    # A list that was given may be filled again for the next text.
    copies = [text._replace(words=list(text.words)) for text in texts]
    segments = [segment for text in copies for segment in text.segments]
    states = run(segments).states if segments else None
    rows = (
        to_host(select(_without_boundaries(states[:, row, : len(segment) + 2], device)))
        for row, segment in enumerate(segments)
        if states is not None
    )
    for text in copies:
        yield text, [next(rows) for _ in text.lengths]


def _without_boundaries(states: Float[Array, "L T+2 2*D"], device: Device) -> SentenceLayers:
    """Return the layers of one sentence, given with those of its boundary tokens."""
    width = states.shape[2] // 2
    boundary = device.concatenate([states[-1, :1, :width], states[-1, -1:, width:]], axis=0)
    lengths = np.array([states.shape[1] - 2])
    return SentenceLayers(states[:, 1:-1], lengths, boundary, device)
