"""How many words got their tag."""

from collections.abc import Sequence


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Give the accuracy over words, in percent; 0 where there are none."""
    right = total = 0
    for place, (truth, guess) in enumerate(zip(gold, predicted, strict=True)):
        if len(truth) != len(guess):
            raise ValueError(f"sentence {place} has {len(truth)} tags and {len(guess)} predicted")
        right += sum(a == b for a, b in zip(truth, guess, strict=True))
        total += len(truth)
    return {"accuracy": 100 * right / total if total else 0.0}
