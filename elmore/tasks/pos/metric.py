"""How many words got their tag."""

from collections.abc import Sequence

from elmore.tasks import accuracy


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Give the accuracy over words, in percent; 0 where there are none."""
    for place, (truth, guess) in enumerate(zip(gold, predicted, strict=True)):
        if len(truth) != len(guess):
            raise ValueError(f"sentence {place} has {len(truth)} tags and {len(guess)} predicted")
    return accuracy.score(
        [t for tags in gold for t in tags], [t for tags in predicted for t in tags]
    )
