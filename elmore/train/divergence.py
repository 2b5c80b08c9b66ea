"""Tell a run that diverges from a healthy one whose batches differ: by a running mean of the loss.

    mean[n] = sum_i decay^(n-i) loss[i] count[i] / sum_i decay^(n-i) count[i],  decay = 1 - 1/window

A batch of short documents and one of long ones may have losses that differ tenfold. Their mean over
many updates, in which each prediction counts the same, changes slowly unless the model gets worse.
"""

import math
from dataclasses import dataclass, replace

_SMALL = 0.1  # what is learned by heart has a loss near 0, of which any other is a multiple


@dataclass(frozen=True, kw_only=True)
class LossMean:
    """A running mean of the loss and the best it has been; a checkpoint keeps it."""

    loss: float = 0.0
    """The decayed sum of the losses of all predictions."""
    count: float = 0.0
    """The decayed number of predictions."""
    num_updates: int = 0
    best: float | None = None
    last_calm: int = 0
    """The last update after which the mean was nearer to the best than to the bound."""

    @property
    def value(self) -> float:
        """The mean itself; 0 before anything was predicted."""
        return self.loss / self.count if self.count else 0.0

    def bound(self, factor: float) -> float:
        """Give what the mean of a healthy run does not exceed; nothing is known at the start."""
        return math.inf if self.best is None else factor * max(self.best, _SMALL)

    def after(
        self, step: int, loss: float, count: float, *, window: int, factor: float
    ) -> "LossMean":
        """Take in an update; the first `window` are not judged, nor compared with."""
        decay = 1 - 1 / window
        new = replace(
            self,
            loss=decay * self.loss + loss * count,
            count=decay * self.count + count,
            num_updates=self.num_updates + 1,
        )
        if new.num_updates >= window:
            new = replace(new, best=new.value if new.best is None else min(new.best, new.value))
        calm = new.value <= new.bound(math.sqrt(factor))
        return replace(new, last_calm=step) if calm else new
