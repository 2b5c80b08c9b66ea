"""The LSTM state that AllenNLP and bilm-tf carry from batch to batch, to reproduce their vectors.

The state belongs to a row of the batch, not to a sentence: row 3 starts in the state in which row 3
of the last batch ended. A smaller batch leaves the other rows unchanged; the additional rows of a
larger batch start from the initial state.

Shapes: L layers (the token layer is one of them), T tokens, D width of one direction.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.embed.tokenized import TokenizedText
from elmore.model.bilm import BiLMState
from elmore.model.layer_stack import LayerStack


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
        joined = [
            torch.cat([old[:, :, :shared].to(new), new[:, :, shared:]], dim=2) for old, new in pairs
        ]
        return BiLMState(*joined)

    def store(self, state: BiLMState) -> None:
        """Store the final states of the rows of a batch."""
        if self.rows is not None:
            used = state.cell.shape[2]
            pairs = zip(state, self.rows, strict=True)
            joined = [torch.cat([new, old[:, :, used:].to(new)], dim=2) for new, old in pairs]
            state = BiLMState(*joined)
        self.rows = BiLMState(*(part.detach() for part in state))


@torch.no_grad()
def run_as_batch(
    run: Callable[[Sequence[Sequence[str]]], LayerStack],
    texts: Sequence[TokenizedText],
    select: Callable[[Tensor], Tensor],
) -> Iterator[tuple[TokenizedText, list[Float[np.ndarray, "*L T 2*D"]]]]:
    """Run all segments as the rows of one padded batch; yield each text with its vectors."""
    segments = [segment for text in texts for segment in text.segments]
    states = run(segments).without_boundaries().states if segments else None
    rows = (
        select(states[:, row, : len(segment)]).cpu().numpy()
        for row, segment in enumerate(segments)
        if states is not None
    )
    for text in texts:
        yield text, [next(rows) for _ in text.segments]
