"""Scores of word senses with confidence intervals, counted as in Raganato et al. (2017)."""

from collections.abc import Sequence

import numpy as np

from elmore.probe.estimates import estimate_ratio
from elmore.probe.sense_corpus import Instance
from elmore.probe.wordnet import POS

Scores = dict[str, float]


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
    # F1 is 2 correct / (answered + all), and each instance adds to both.
    numerators = [2 * (answer in instance.keys) for instance, answer in pairs]
    denominators = [1 + (answer is not None) for answer in answers]
    f1 = estimate_ratio(np.array(numerators), np.array(denominators), seed=seed)
    scores = {
        "f1": f1.score,
        "f1_low": f1.low,
        "f1_high": f1.high,
        "precision": correct / max(1, num_answered),
        "recall": correct / total,
        "coverage": num_answered / total,
    }
    for pos in POS:
        of_pos = [pair for pair in pairs if pair[0].pos == pos]
        if of_pos:
            scores[f"f1_{pos.lower()}"] = _f1(*_counts(of_pos))
    return scores


def score_gain(
    instances: Sequence[Instance],
    answers: Sequence[str | None],
    baseline: Sequence[str | None],
    *,
    seed: int = 0,
) -> Scores:
    """Score answers against those of a baseline to the same instances.

    Returns:
        The difference of F1 as `gain`, and its paired 95 % bootstrap interval as `gain_low` and
        `gain_high`. Both must leave the same instances without an answer.
    """
    triples = list(zip(instances, answers, baseline, strict=True))
    gains = [2 * ((one in gold.keys) - (other in gold.keys)) for gold, one, other in triples]
    denominators = [1 + (answer is not None) for answer in answers]
    gain = estimate_ratio(np.array(gains), np.array(denominators), seed=seed)
    return {"gain": gain.score, "gain_low": gain.low, "gain_high": gain.high}


def _counts(pairs: Sequence[tuple[Instance, str | None]]) -> tuple[int, int, int]:
    """Return the numbers of correct, answered and all instances."""
    correct = sum(answer in instance.keys for instance, answer in pairs)
    return correct, sum(answer is not None for _, answer in pairs), len(pairs)


def _f1(correct: int, num_answered: int, total: int) -> float:
    """Return 2PR / (P + R), where P = correct / answered and R = correct / total."""
    return 2 * correct / (num_answered + total)
