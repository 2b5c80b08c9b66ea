"""Scores of word senses with confidence intervals, counted as in Raganato et al. (2017)."""

from collections.abc import Sequence

import numpy as np

from elmore.probe.sense_corpus import Instance
from elmore.probe.wordnet import POS

Scores = dict[str, float]

_RESAMPLES = 10_000


def score_senses(
    instances: Sequence[Instance], answers: Sequence[str | None], *, seed: int = 0
) -> Scores:
    """Score answers; an answer is correct if it is any of the gold keys, and None is no answer.

    Returns:
        Fractions: `precision` of the answered, `recall` of all, `coverage` (how many were
        answered), `f1`, its 95 % bootstrap interval `f1_low` and `f1_high`, and `f1_noun` and so on
        per part of speech.
    """
    pairs = list(zip(instances, answers, strict=True))
    correct, num_answered, total = _counts(pairs)
    # Resampling instances is resampling the counts of correct, wrong and unanswered ones.
    fractions = np.array([correct, num_answered - correct, total - num_answered]) / total
    drawn = np.random.default_rng(seed).multinomial(total, fractions, size=_RESAMPLES)
    drawn_f1 = 2 * drawn[:, 0] / (drawn[:, 0] + drawn[:, 1] + total)
    low, high = np.quantile(drawn_f1, (0.025, 0.975)).tolist()
    scores = {
        "f1": _f1(correct, num_answered, total),
        "f1_low": low,
        "f1_high": high,
        "precision": correct / max(1, num_answered),
        "recall": correct / total,
        "coverage": num_answered / total,
    }
    for pos in POS:
        of_pos = [pair for pair in pairs if pair[0].pos == pos]
        if of_pos:
            scores[f"f1_{pos.lower()}"] = _f1(*_counts(of_pos))
    return scores


def _counts(pairs: Sequence[tuple[Instance, str | None]]) -> tuple[int, int, int]:
    """Return the numbers of correct, answered and all instances."""
    correct = sum(answer in instance.keys for instance, answer in pairs)
    return correct, sum(answer is not None for _, answer in pairs), len(pairs)


def _f1(correct: int, num_answered: int, total: int) -> float:
    """Return 2PR / (P + R), where P = correct / answered and R = correct / total."""
    return 2 * correct / (num_answered + total)
