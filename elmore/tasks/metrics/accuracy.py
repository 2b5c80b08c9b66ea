"""Accuracy: the fraction of labels that are right."""

from collections.abc import Sequence


def score(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Return the accuracy in percent; 0 if there are no labels."""
    right = sum(
        gold_label == predicted_label
        for gold_label, predicted_label in zip(gold, predicted, strict=True)
    )
    return {"accuracy": 100 * right / len(gold) if gold else 0.0}
