"""Accuracy over words."""

from collections.abc import Sequence

from elmore.tasks.data.columns import pair_tags
from elmore.tasks.metrics import accuracy


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the accuracy over words in percent; 0 if there are none."""
    pairs = list(pair_tags(gold, predicted))
    return accuracy.score(
        [t for gold_tags, _ in pairs for t in gold_tags], [t for _, g in pairs for t in g]
    )
