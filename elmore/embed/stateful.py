"""The state that AllenNLP and bilm-tf carry from batch to batch, for those who must match them.

It belongs to the row number in the batch, not to a sentence: row 3 of a batch starts where row 3 of
the batch before stopped. A smaller batch leaves the rows it does not use as they were; a larger one
starts its new rows from zero.
"""

import torch

from elmore.model.bilm import BiLMState


class StatefulRows:
    """What each row remembers. The one thing in the house that keeps a state, because asked to."""

    def __init__(self) -> None:
        self.rows: BiLMState | None = None

    def load(self, start: BiLMState) -> BiLMState:
        """Give the state to run with: remembered rows first, then those of `start`."""
        if self.rows is None:
            return start
        kept = min(start.cell.shape[2], self.rows.cell.shape[2])
        pairs = zip(self.rows, start, strict=True)
        joined = [
            torch.cat([old[:, :, :kept].to(new), new[:, :, kept:]], dim=2) for old, new in pairs
        ]
        return BiLMState(*joined)

    def store(self, state: BiLMState) -> None:
        """Remember what the rows of a batch ended with."""
        if self.rows is not None:
            used = state.cell.shape[2]
            pairs = zip(state, self.rows, strict=True)
            joined = [torch.cat([new, old[:, :, used:].to(new)], dim=2) for new, old in pairs]
            state = BiLMState(*joined)
        self.rows = BiLMState(*(part.detach() for part in state))
