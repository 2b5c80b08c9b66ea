"""The LSTM state that AllenNLP and bilm-tf carry from batch to batch, to reproduce their vectors.

The state belongs to a row of the batch, not to a sentence: row 3 starts in the state in which row 3
of the last batch ended. A smaller batch leaves the other rows unchanged; the additional rows of a
larger batch start from the initial state.
"""

import torch

from elmore.model.bilm import BiLMState


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
