"""Scores of word senses, as the scorer of Raganato et al. (2017) counts, and how sure they are."""

from collections.abc import Sequence

import numpy as np

from elmore.probe.sense_data import Instance
from elmore.probe.wordnet import POS

Scores = dict[str, float]

_RESAMPLES = 10_000


def score(uses: Sequence[Instance], answers: Sequence[str | None], *, seed: int = 0) -> Scores:
    """Count an answer as right if it is any of the gold keys; None is no answer.

    All are shares: precision is of those answered, recall of all, coverage is how many were
    answered; `f1_low` and `f1_high` are a 95 % interval by a bootstrap over the uses, `f1_noun` and
    so on the F1 of a part of speech.
    """
    pairs = list(zip(uses, answers, strict=True))
    right, told, total = _counts(pairs)
    # A use is right, wrong or unanswered, so drawing uses anew is drawing those three numbers.
    shares = np.array([right, told - right, total - told]) / total
    drawn = np.random.default_rng(seed).multinomial(total, shares, size=_RESAMPLES)
    drawn_f1 = 2 * drawn[:, 0] / (drawn[:, 0] + drawn[:, 1] + total)
    low, high = np.quantile(drawn_f1, (0.025, 0.975)).tolist()
    found = {
        "f1": _f1(right, told, total),
        "f1_low": low,
        "f1_high": high,
        "precision": right / max(1, told),
        "recall": right / total,
        "coverage": told / total,
    }
    for pos in POS:
        of_pos = [pair for pair in pairs if pair[0].pos == pos]
        if of_pos:
            found[f"f1_{pos.lower()}"] = _f1(*_counts(of_pos))
    return found


def _counts(pairs: Sequence[tuple[Instance, str | None]]) -> tuple[int, int, int]:
    """Give how many are right, answered, and all."""
    right = sum(answer in use.keys for use, answer in pairs)
    return right, sum(answer is not None for _, answer in pairs), len(pairs)


def _f1(right: int, told: int, total: int) -> float:
    """Give 2PR / (P + R), where P = right / told and R = right / total."""
    return 2 * right / (told + total)
