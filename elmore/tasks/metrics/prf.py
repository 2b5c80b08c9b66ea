"""What was true, what was guessed and what of it is right: precision, recall and their mean."""

from collections import Counter
from collections.abc import Callable, Iterable


class Tally:
    """Counts by kind; scores are in percent, and 0 where nothing is to be counted."""

    def __init__(self) -> None:
        self.true: Counter[str] = Counter()
        self.guessed: Counter[str] = Counter()
        self.right: Counter[str] = Counter()

    def add(self, true: Iterable[tuple], guessed: Iterable[tuple]) -> None:
        """Count things whose kind stands first in them, each of them once."""
        true, guessed = set(true), set(guessed)
        for counter, some in (
            (self.true, true),
            (self.guessed, guessed),
            (self.right, true & guessed),
        ):
            counter.update(item[0] for item in some)

    @property
    def kinds(self) -> list[str]:
        """What there is or was guessed."""
        return sorted(self.true | self.guessed)

    def f1(self, chosen: Callable[[str], bool] = lambda kind: True) -> float:
        """Give the harmonic mean of precision and recall over some kinds."""
        right, guessed, true = (
            sum(number for kind, number in counter.items() if chosen(kind))
            for counter in (self.right, self.guessed, self.true)
        )
        return percent(2 * right, guessed + true)

    def scores(self) -> dict[str, float]:
        """Give f1, precision and recall over all kinds."""
        right = self.right.total()
        return {
            "f1": self.f1(),
            "precision": percent(right, self.guessed.total()),
            "recall": percent(right, self.true.total()),
        }


def percent(part: int | float, whole: int | float) -> float:
    """Give a share in percent; 0 of nothing."""
    return 100 * part / whole if whole else 0.0
