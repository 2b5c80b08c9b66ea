"""Metrics and their 95 % bootstrap intervals.

Shapes: N items of a test set, R resamples, U distinct items.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

_RATIO_RESAMPLES = 10_000
_RANK_RESAMPLES = 1_000  # each ranks all items again
_INTERVAL = (0.025, 0.975)


class Estimate(NamedTuple):
    """A score, its 95 % bootstrap interval, and the number of items that were resampled."""

    score: float
    low: float
    high: float
    n: int


def estimate_ratio(
    numerators: Shaped[np.ndarray, " N"],
    denominators: Shaped[np.ndarray, " N"] | None = None,
    *,
    seed: int = 0,
) -> Estimate:
    """Return sum(numerators) / sum(denominators), 0 if there is nothing to divide by.

    Accuracy, F1 and means are such ratios. Without denominators it is the mean.
    """
    ones = np.ones(len(numerators)) if denominators is None else denominators
    pairs = np.stack([np.asarray(numerators, float), np.asarray(ones, float)], axis=1)
    # Resampling items is resampling the counts of the distinct ones, which are few.
    distinct, counts = np.unique(pairs, axis=0, return_counts=True)  # (U, 2), (U,)
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(pairs), counts / len(pairs), size=_RATIO_RESAMPLES)  # (R, U)
    low, high = np.quantile(_divide(drawn @ distinct), _INTERVAL).tolist()
    return Estimate(float(_divide(pairs.sum(axis=0))), low, high, len(pairs))


def _divide(sums: Float[np.ndarray, "*R 2"]) -> Float[np.ndarray, "*R"]:
    top, bottom = sums[..., 0], sums[..., 1]
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


def estimate_spearman(
    a: Float[np.ndarray, " N"], b: Float[np.ndarray, " N"], *, seed: int = 0
) -> Estimate:
    """Return Spearman's rank correlation."""
    generator = np.random.default_rng(seed)
    drawn = (generator.integers(len(a), size=len(a)) for _ in range(_RANK_RESAMPLES))
    resampled = [spearman(a[rows], b[rows]) for rows in drawn]
    low, high = np.quantile(resampled, _INTERVAL).tolist()
    return Estimate(spearman(a, b), low, high, len(a))


def spearman(a: Float[np.ndarray, " N"], b: Float[np.ndarray, " N"]) -> float:
    """Return the Pearson correlation of the ranks; 0 if one side is constant."""
    first, second = (ranks - ranks.mean() for ranks in (_rank(a), _rank(b)))
    scale = np.sqrt((first @ first) * (second @ second))
    return float(first @ second / scale) if scale > 0 else 0.0


def _rank(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return the ranks from 1; equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]


def choose_threshold(values: Float[np.ndarray, " N"], labels: Bool[np.ndarray, " N"]) -> float:
    """Return the threshold for which `values >= threshold` predicts most labels; the lowest such.

    It lies between two values, or is infinite if one label for all is best.
    """
    order = np.argsort(values, kind="stable")
    ordered, positive = values[order], labels[order]
    # correct[i]: predictions that are right if the i smallest values are negative
    correct = np.concatenate([[0], np.cumsum(~positive)]) + np.concatenate(
        [np.cumsum(positive[::-1])[::-1], [0]]
    )
    cuts = np.concatenate([[-np.inf], (ordered[1:] + ordered[:-1]) / 2, [np.inf]])
    splits_equals = np.concatenate([[False], ordered[1:] == ordered[:-1], [False]])
    return float(cuts[np.where(splits_equals, -1, correct).argmax()])


def generalized_average_precision(gold: Float[np.ndarray, " N"]) -> float:
    """Return the generalized average precision (Kishida, 2005) of a ranking.

        GAP = sum_i [gold_i > 0] mean(gold_1 … gold_i)  divided by the same sum in the best order

    Args:
        gold: The weights of the candidates in the order of the ranking; one is above 0.
    """
    return _sum_of_means(gold) / _sum_of_means(np.sort(gold)[::-1])


def _sum_of_means(gold: Float[np.ndarray, " N"]) -> float:
    means = np.cumsum(gold) / np.arange(1, len(gold) + 1)
    return float(means[gold > 0].sum())


def f_counts(relevant: Bool[np.ndarray, " N"], k: int) -> tuple[int, int]:
    """Return what F at k is summed from: twice the hits, and the predicted plus the relevant.

    Args:
        relevant: Whether each candidate is relevant, in the order of the ranking.
        k: The first k are predicted; of more than k relevant ones, k count.
    """
    num_relevant: Int[np.ndarray, ""] = relevant.sum()
    return 2 * int(relevant[:k].sum()), min(k, len(relevant)) + min(k, int(num_relevant))
