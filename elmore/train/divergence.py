"""Tell a run that diverges from a healthy one by a running geometric mean of the loss.

    mean[n] = exp(sum_i decay^(n-i) log loss[i] / sum_i decay^(n-i)),  decay = 1 - 1/window

Batches of short and of long documents may have losses that differ twentyfold, and one batch may
have any loss. A single update moves the mean of the logarithm little, however high its loss is or
however many predictions it has; only a loss that stays high moves it far.
"""

import math
from dataclasses import dataclass, replace

_SMALL = 0.1  # a memorised batch has a loss near 0, of which any other loss is a large multiple
_FIRST_JUDGED = 4  # the mean counts once it has seen the window divided by this


@dataclass(frozen=True, kw_only=True)
class LossMean:
    """The running mean and the lowest value it has had; a checkpoint stores it."""

    log_sum: float = 0.0
    """Decayed sum of the logarithms of the losses."""
    weight: float = 0.0
    """Decayed number of updates."""
    num_updates: int = 0
    best: float | None = None
    last_good_step: int = 0
    """The last update after which the mean was within a quarter of its way to the bound."""

    @property
    def value(self) -> float:
        """The mean itself; 0 before anything was predicted."""
        return math.exp(self.log_sum / self.weight) if self.weight else 0.0

    def bound(self, factor: float) -> float:
        """Return the highest mean of a healthy run; infinity while there is no best."""
        return math.inf if self.best is None else factor * self.best

    def after(
        self, step: int, loss: float, count: float, *, window: int, factor: float
    ) -> "LossMean":
        """Return the mean with one more update; one that predicts nothing changes nothing."""
        new = self
        if count:
            decay = 1 - 1 / window
            new = replace(
                self,
                log_sum=decay * self.log_sum + math.log(max(loss, _SMALL)),
                weight=decay * self.weight + 1,
                num_updates=self.num_updates + 1,
            )
            if new.num_updates * _FIRST_JUDGED >= window:
                new = replace(new, best=min(new.value, new.best or math.inf))
        good = new.value <= new.bound(factor**0.25)
        return replace(new, last_good_step=step) if good else new
