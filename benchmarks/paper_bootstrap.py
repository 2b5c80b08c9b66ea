"""A paired bootstrap over test examples and seeds, for benchmarks/paper.py.

Each resample draws the test examples with replacement, the same ones for both columns and for
every seed, and draws the seeds of each column with replacement. The score of a column is the mean
over its drawn seeds of the task's own score (an F1 of summed counts, not a mean of F1s).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_CHUNK = 200  # resamples at a time


class Gain(NamedTuple):
    """By how many points a column is better than another one."""

    mean: float
    low: float
    high: float
    """Percentiles alpha/2 and 1 - alpha/2 of the resamples."""
    p: float
    """Two-sided: how often a resample has no gain, or no loss, whichever is rarer, times two."""


def paired_bootstrap(
    before: Sequence[Float[np.ndarray, "N C"]],
    after: Sequence[Float[np.ndarray, "N C"]],
    score_counts: Callable[[Float[np.ndarray, "R C"]], Float[np.ndarray, " R"]],
    *,
    resamples: int,
    alpha: float,
    seed: int = 0,
) -> Gain:
    """Return the gain from one column to another.

    Args:
        before: The counts of each test example, for each seed of the column to compare with.
        after: The same for the column whose gain it is.
        score_counts: The score of summed counts.
        resamples: Their number R.
        alpha: One minus the confidence of the interval.
        seed: Of the resampling.

    Raises:
        ValueError: The columns were not tested on the same number of examples.
    """
    sizes = {len(counts) for counts in (*before, *after)}
    if len(sizes) != 1:
        raise ValueError(f"expected the same test examples everywhere, found {sorted(sizes)}")
    (size,) = sizes
    generator = np.random.default_rng(seed)
    gains = []
    for start in range(0, resamples, _CHUNK):
        number = min(_CHUNK, resamples - start)
        drawn = generator.integers(size, size=(number, size))
        times = np.stack([np.bincount(row, minlength=size) for row in drawn]).astype(float)
        scores = [
            np.stack([score_counts(times @ counts) for counts in column])  # (S, R)
            for column in (before, after)
        ]
        means = [_draw_seeds(column, generator) for column in scores]
        gains.append(means[1] - means[0])
    gain = np.concatenate(gains)
    low, high = np.quantile(gain, [alpha / 2, 1 - alpha / 2])
    rarer = min((gain <= 0).sum(), (gain >= 0).sum())
    p = min(1.0, 2 * (int(rarer) + 1) / (resamples + 1))
    return Gain(
        float(_mean_score(after, score_counts) - _mean_score(before, score_counts)),
        float(low),
        float(high),
        p,
    )


def _draw_seeds(
    scores: Float[np.ndarray, "S R"], generator: np.random.Generator
) -> Float[np.ndarray, " R"]:
    """Return the mean score of seeds drawn with replacement, anew for each resample."""
    drawn = generator.integers(len(scores), size=scores.shape)
    return np.take_along_axis(scores, drawn, axis=0).mean(axis=0)


def _mean_score(
    column: Sequence[Float[np.ndarray, "N C"]],
    score_counts: Callable[[Float[np.ndarray, "R C"]], Float[np.ndarray, " R"]],
) -> float:
    return float(score_counts(np.stack([counts.sum(0) for counts in column])).mean())
