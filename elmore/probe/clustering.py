"""Cluster points, and choose the number of clusters.

K-means starts ten times from points that are far apart (k-means++, Arthur and Vassilvitskii, 2007)
and keeps the clusters with the least sum of squared distances to their means. The silhouette
(Rousseeuw, 1987: how much nearer a point is to its own cluster than to the next, from -1 to 1)
selects the number of clusters.

Only numpy is needed: a word has some hundred occurrences, and an installation without extras can
cluster them.

Shapes: N points, P dimensions, K clusters.
"""

from collections import Counter

import numpy as np
from jaxtyping import Float, Int

from elmore.errors import ConfigError

MAX_CLUSTERS = 8
"""The number of distinguishable colours."""

_TOLERANCE = 1e-4  # points closer than this are the same point
_STARTS = 10
_MAX_STEPS = 300
_BLOCK = 1024  # points whose distances to all others are in memory at once


def cluster_points(
    points: Float[np.ndarray, "N P"],
    number: int | None = None,
    seed: int = 0,
    *,
    most: int = MAX_CLUSTERS,
) -> tuple[Int[np.ndarray, " N"], float | None]:
    """Cluster points by k-means.

    Args:
        points: The coordinates.
        number: The number of clusters; by default, from 2 to `most`, the best by the silhouette.
        seed: Seed of the starts of k-means.
        most: The highest number of clusters that is tried.

    Returns:
        The cluster of each point, the largest being 0; and the silhouette, None if there is only
        one cluster or one for each point.

    Raises:
        ConfigError: There are fewer distinct points than clusters.
    """
    distinct = len(np.unique(np.round(points / _TOLERANCE), axis=0))
    if number is not None and not 1 <= number <= distinct:
        raise ConfigError(
            f"--clusters {number}: only {distinct} occurrences differ; pass 1 to {distinct}"
        )
    limit = min(most, distinct, len(points) - 1)
    choices = [number] if number else range(2, limit + 1)
    best, labels = None, np.zeros(len(points), dtype=int)
    for count in choices:
        own = k_means(points, count, seed)
        score = silhouette(points, own)
        if number or best is None or (score is not None and score > best):
            best, labels = score, own
    by_size = [cluster for cluster, _ in Counter(labels.tolist()).most_common()]
    rank_of = {cluster: rank for rank, cluster in enumerate(by_size)}
    return np.array([rank_of[cluster] for cluster in labels.tolist()]), best


def k_means(points: Float[np.ndarray, "N P"], count: int, seed: int = 0) -> Int[np.ndarray, " N"]:
    """Return the cluster of each point: the best of ten starts."""
    generator = np.random.default_rng(seed)
    results = [_lloyd(points, _spread_out(points, count, generator)) for _ in range(_STARTS)]
    return min(results, key=lambda result: result[1])[0]


def _spread_out(
    points: Float[np.ndarray, "N P"], count: int, generator: np.random.Generator
) -> Float[np.ndarray, "K P"]:
    """Draw points with a probability that grows with the squared distance to those drawn."""
    chosen = [int(generator.integers(len(points)))]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < count:
        np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(axis=1), out=nearest)
        total = nearest.sum()
        weights = nearest / total if total > 0 else None
        chosen.append(int(generator.choice(len(points), p=weights)))
    return points[chosen]


def _lloyd(
    points: Float[np.ndarray, "N P"], centres: Float[np.ndarray, "K P"]
) -> tuple[Int[np.ndarray, " N"], float]:
    """Assign points to the nearest centre and move centres to their means until nothing changes.

    Returns the clusters, and the sum of the squared distances to the centres.
    """
    labels = np.full(len(points), -1)
    distances = np.zeros((len(points), len(centres)))
    for _ in range(_MAX_STEPS):
        distances = _squared_distances(points, centres)
        nearest = distances.argmin(axis=1)
        if (nearest == labels).all():
            break
        labels, centres = nearest, centres.copy()
        for cluster in range(len(centres)):
            inside = points[labels == cluster]
            if len(inside):
                centres[cluster] = inside.mean(axis=0)
            else:  # a centre that no point is near to starts again where the points are farthest
                centres[cluster] = points[distances.min(axis=1).argmax()]
    return labels, float(distances.min(axis=1).sum())


def _squared_distances(
    points: Float[np.ndarray, "N P"], centres: Float[np.ndarray, "K P"]
) -> Float[np.ndarray, "N K"]:
    squares = np.square(points).sum(axis=1)[:, None] + np.square(centres).sum(axis=1)
    return np.maximum(squares - 2 * points @ centres.T, 0)


def silhouette(points: Float[np.ndarray, "N P"], labels: Int[np.ndarray, " N"]) -> float | None:
    """Return the mean silhouette; None if there is only one cluster, or one for each point.

    A point that is a cluster of its own has the silhouette 0.
    """
    clusters, own = np.unique(labels, return_inverse=True)
    if not 1 < len(clusters) < len(points):
        return None
    members = np.eye(len(clusters))[own]  # (N, K)
    sizes = members.sum(axis=0)
    total = 0.0
    for begin in range(0, len(points), _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        sums = np.sqrt(_squared_distances(points[rows], points)) @ members  # (n, K)
        mine = np.arange(len(sums)), own[rows]
        size = sizes[own[rows]]
        inside = sums[mine] / np.maximum(size - 1, 1)
        sums[mine] = np.inf
        nearest = (sums / sizes).min(axis=1)
        scale = np.maximum(np.maximum(inside, nearest), np.finfo(float).tiny)
        total += float(np.where(size > 1, (nearest - inside) / scale, 0.0).sum())
    return total / len(points)
