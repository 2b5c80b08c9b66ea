"""Measure how much the uses of a word differ between two periods.

For the unit vectors u_1 … u_n of its old uses, v_1 … v_m of its new ones, and their means p and q:

    APD = mean over i, j of 1 - u_i · v_j = 1 - p · q           average pairwise distance
    PRT = 1 - p · q / (|p| |q|)                                 prototype distance
    JSD = sqrt(H((P + Q) / 2) - H(P) / 2 - H(Q) / 2)            Jensen-Shannon distance

(Kutuzov and Giulianelli, 2020; Giulianelli et al., 2020). P and Q are the frequencies of the sense
clusters in each period, H is the entropy in bits. The 95 % intervals are of 1,000 bootstrap samples
of the uses of each period. Prototypes of samples are farther apart than those of all uses, because
samples repeat uses; so the intervals are shifted to have the samples' mean at the measured value.
The p-value is the fraction of random divisions of the same uses with a PRT at least as high.

A use moved if it is far from the other period and near to its own:

    moved(u_i) = mean over j of 1 - u_i · v_j  -  mean over j != i of 1 - u_i · u_j

Shapes: N and M uses of the periods, D width, K clusters, R samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from elmore.probe.cosine import normalize

_SAMPLES = 1000
_INTERVAL = (0.025, 0.975)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measured value and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The change of a word between two periods."""

    apd: Measure
    prt: Measure
    jsd: Measure
    p: float
    """How probable so high a PRT is if nothing changed."""
    within_old: float
    """Mean distance of two old uses; it is high if the word has many senses."""
    within_new: float


def measure_scores(
    old: Float[np.ndarray, "N D"],
    new: Float[np.ndarray, "M D"],
    old_clusters: Int[np.ndarray, " N"],
    new_clusters: Int[np.ndarray, " M"],
    *,
    seed: int = 0,
) -> Scores:
    """Measure the change of a word.

    Args:
        old: One vector for each old use, of any length.
        new: One vector for each new use.
        old_clusters: The sense cluster of each old use, from 0.
        new_clusters: The sense cluster of each new use.
        seed: Seed of the random samples.

    Returns:
        All measures. With only one use in a period, its `within` is 0.
    """
    # In float64, or rounding would decide whether a division has the same PRT as the measured one.
    old, new = (normalize(uses.astype(np.float64)) for uses in (old, new))
    num_clusters = 1 + int(max(old_clusters.max(), new_clusters.max()))
    old_counts, new_counts = (np.eye(num_clusters)[own] for own in (old_clusters, new_clusters))
    generator = np.random.default_rng(seed)
    drawn = [
        generator.multinomial(len(uses), np.full(len(uses), 1 / len(uses)), size=_SAMPLES)
        for uses in (old, new)
    ]  # how often each sample has each use: (R, N), (R, M)

    def measure(
        distance: Callable[..., Float[np.ndarray, "*R"]],
        a: Float[np.ndarray, "N X"],
        b: Float[np.ndarray, "M X"],
    ) -> Measure:
        value = float(distance(a.mean(axis=0), b.mean(axis=0)))
        samples = distance(drawn[0] @ a / len(a), drawn[1] @ b / len(b))
        low, high = (value + np.quantile(samples - samples.mean(), _INTERVAL)).tolist()
        return Measure(value=value, low=max(0.0, low), high=high)

    prt = measure(prototype_distance, old, new)
    return Scores(
        apd=measure(pairwise_distance, old, new),
        prt=prt,
        jsd=measure(jensen_shannon, old_counts, new_counts),
        p=_p_value(np.concatenate([old, new]), len(old), prt.value, generator),
        within_old=_within(old),
        within_new=_within(new),
    )


def pairwise_distance(
    old_mean: Float[np.ndarray, "*R D"], new_mean: Float[np.ndarray, "*R D"]
) -> Float[np.ndarray, "*R"]:
    """Return the average pairwise distance (APD) from the means of unit vectors."""
    return np.maximum(0.0, 1 - (old_mean * new_mean).sum(axis=-1))


def prototype_distance(
    old_mean: Float[np.ndarray, "*R D"], new_mean: Float[np.ndarray, "*R D"]
) -> Float[np.ndarray, "*R"]:
    """Return the cosine distance of prototypes (PRT)."""
    return pairwise_distance(normalize(old_mean), normalize(new_mean))


def jensen_shannon(
    p: Float[np.ndarray, "*R K"], q: Float[np.ndarray, "*R K"]
) -> Float[np.ndarray, "*R"]:
    """Return the Jensen-Shannon distance of distributions, 0 to 1: the root of the divergence."""
    divergence = _entropy((p + q) / 2) - _entropy(p) / 2 - _entropy(q) / 2
    return np.sqrt(np.clip(divergence, 0.0, 1.0))


def _entropy(p: Float[np.ndarray, "*R K"]) -> Float[np.ndarray, "*R"]:
    return -(p * np.log2(np.where(p > 0, p, 1.0))).sum(axis=-1)


def _within(uses: Float[np.ndarray, "N D"]) -> float:
    """Return the mean distance of two different uses of a period."""
    return float(_distance_to_others(uses).mean())


def _distance_to_others(uses: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """Return the mean distance of each use to the other uses of its period."""
    cosines = uses @ uses.sum(axis=0) - np.square(uses).sum(axis=1)
    others = len(uses) - 1
    return np.maximum(0.0, 1 - cosines / others) if others else np.zeros(len(uses))


def _p_value(
    uses: Float[np.ndarray, "N D"], num_old: int, observed: float, generator: np.random.Generator
) -> float:
    is_old: Bool[np.ndarray, "R N"] = np.zeros((_SAMPLES, len(uses)), bool)
    is_old[:, :num_old] = True
    is_old = generator.permuted(is_old, axis=1)
    old_mean = is_old.astype(uses.dtype) @ uses / num_old
    new_mean = (uses.sum(axis=0) - old_mean * num_old) / (len(uses) - num_old)
    at_least = prototype_distance(old_mean, new_mean) >= observed - 1e-9
    return float((1 + at_least.sum()) / (1 + _SAMPLES))


def measure_moves(
    old: Float[np.ndarray, "N D"], new: Float[np.ndarray, "M D"]
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " M"]]:
    """Return how far each use moved: farther from the other period than from its own."""
    old, new = normalize(old), normalize(new)
    return (
        1 - old @ new.mean(axis=0) - _distance_to_others(old),
        1 - new @ old.mean(axis=0) - _distance_to_others(new),
    )
