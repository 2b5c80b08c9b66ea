"""How many words got their tag."""

from collections.abc import Sequence

from elmore.tasks.data.columns import paired
from elmore.tasks.metrics import accuracy


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Give the accuracy over words, in percent; 0 where there are none."""
    pairs = list(paired(gold, predicted))
    return accuracy.score(
        [t for truth, _ in pairs for t in truth], [t for _, g in pairs for t in g]
    )
