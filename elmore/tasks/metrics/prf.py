"""Precision, recall and F1 over labelled spans."""

from collections import Counter
from collections.abc import Callable, Iterable


class PrecisionRecallF1:
    """Counts gold, predicted and correct items by type; scores are in percent, 0 for no items."""

    def __init__(self) -> None:
        self.gold: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()
        self.correct: Counter[str] = Counter()

    def add(self, gold: Iterable[tuple], predicted: Iterable[tuple]) -> None:
        """Count items, tuples whose first element is their type; equal items count once."""
        gold, predicted = set(gold), set(predicted)
        for counter, items in (
            (self.gold, gold),
            (self.predicted, predicted),
            (self.correct, gold & predicted),
        ):
            counter.update(item[0] for item in items)

    @property
    def types(self) -> list[str]:
        """All types of gold and predicted items."""
        return sorted(self.gold | self.predicted)

    def f1(self, includes: Callable[[str], bool] = lambda kind: True) -> float:
        """Return F1 over the types for which `includes` is true."""
        correct, predicted, gold = (
            sum(number for kind, number in counter.items() if includes(kind))
            for counter in (self.correct, self.predicted, self.gold)
        )
        return percent(2 * correct, predicted + gold)

    def totals(self) -> tuple[float, float, float]:
        """Return the number of correct, predicted and gold items."""
        correct, predicted, gold = self.correct.total(), self.predicted.total(), self.gold.total()
        return float(correct), float(predicted), float(gold)

    def scores(self) -> dict[str, float]:
        """Return f1, precision and recall over all types."""
        correct = self.correct.total()
        return {
            "f1": self.f1(),
            "precision": percent(correct, self.predicted.total()),
            "recall": percent(correct, self.gold.total()),
        }


def percent(part: int | float, total: int | float) -> float:
    """Return a ratio in percent; 0 if the whole is 0."""
    return 100 * part / total if total else 0.0
