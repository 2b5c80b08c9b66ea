"""How many labels are right."""

from collections.abc import Sequence


def score(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Give the accuracy in percent; 0 where there is nothing to be right about."""
    right = sum(truth == guess for truth, guess in zip(gold, predicted, strict=True))
    return {"accuracy": 100 * right / len(gold) if gold else 0.0}
