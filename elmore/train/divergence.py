"""Detect a diverging run by a running geometric mean of the loss.

    mean[n] = exp(sum_i decay^(n-i) log loss[i] / sum_i decay^(n-i)),  decay = 1 - 1/window

Batches of short and of long documents may have losses that differ by a factor of twenty, and a
single batch may have any loss. One update changes the mean of the logarithm little, however high
its loss or however many predictions it has; only a loss that stays high changes it much.
"""

import math
from dataclasses import dataclass, replace

_MIN_LOSS = 0.1  # a memorised batch has a loss near 0, and any other loss is many times that
_MIN_WINDOW_FRACTION = 4  # the mean is compared after window / 4 updates


@dataclass(frozen=True, kw_only=True)
class LossMean:
    """The running mean and its minimum so far; stored in checkpoints."""

    log_sum: float = 0.0
    """Decayed sum of the logarithms of the losses."""
    weight: float = 0.0
    """Decayed number of updates."""
    num_updates: int = 0
    best: float | None = None
    last_good_step: int = 0
    """Last update at which the mean was below `best * factor**0.25`."""

    @property
    def value(self) -> float:
        """The mean; 0 before the first prediction."""
        return math.exp(self.log_sum / self.weight) if self.weight else 0.0

    def bound(self, factor: float) -> float:
        """Return the highest mean of a healthy run; infinity while there is no minimum."""
        return math.inf if self.best is None else factor * self.best

    def add(
        self, step: int, loss: float, count: float, *, window: int, factor: float
    ) -> "LossMean":
        """Return the mean that includes one more update; ignore one without predictions."""
        new = self
        if count:
            decay = 1 - 1 / window
            new = replace(
                self,
                log_sum=decay * self.log_sum + math.log(max(loss, _MIN_LOSS)),
                weight=decay * self.weight + 1,
                num_updates=self.num_updates + 1,
            )
            if new.num_updates * _MIN_WINDOW_FRACTION >= window:
                new = replace(new, best=min(new.value, new.best or math.inf))
        good = new.value <= new.bound(factor**0.25)
        return replace(new, last_good_step=step) if good else new
