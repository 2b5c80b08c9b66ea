"""The scores of the suite: rows of the same kind for every set."""

from collections.abc import Callable
from dataclasses import dataclass

from elmore.probe.estimates import Estimate

Progress = Callable[[float, int], None]
"""Called with the fraction done, 0 to 1, and the number of items."""


@dataclass(frozen=True)
class Score:
    """One score of a set, as a fraction."""

    part: str
    """`all`, or the part that is scored, such as a phenomenon of BLiMP."""
    split: str
    """The split that is scored."""
    metric: str
    method: str
    """What of the model is used: a layer, or directions of the language model."""
    chosen: bool
    """Whether the method was chosen, without looking at the split that is scored."""
    score: float
    low: float
    """The bootstrap interval of 95 % begins here."""
    high: float
    n: int
    """Number of items that were resampled for the interval."""

    @classmethod
    def from_estimate(
        cls,
        estimate: Estimate,
        *,
        metric: str,
        method: str,
        chosen: bool,
        part: str = "all",
        split: str = "test",
    ) -> "Score":
        """Return an estimate as a row."""
        return cls(part, split, metric, method, chosen, *estimate)


@dataclass(frozen=True)
class SuiteResults:
    """The scores of a model on each set, and the sets without any."""

    precision: str
    seed: int
    scores: dict[str, list[Score]]
    skipped: dict[str, str]
    """Sets that this model cannot be scored on, with the reason."""
    absent: list[str]
    """Sets that are not in the data folder; empty if the sets were named."""
