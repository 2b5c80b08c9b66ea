"""Draw the occurrences of a word on a plane, in clusters of similar ones.

Vectors are centred, scaled to unit length and projected onto their principal components (PCA), of
which the first few dozen are kept because the rest is noise. K-means clusters these points; the
silhouette (Rousseeuw, 1987: how much nearer a point is to its own cluster than to the next, from -1
to 1) selects the number of clusters. The plane is the first two components, or t-SNE of all.

Where senses are annotated, two scores compare them with the clusters: purity, the fraction of
occurrences whose sense is the most frequent of their cluster, which grows with the number of
clusters; and the adjusted Rand index (Hubert and Arabie, 1985), 0 by chance and 1 if identical.

Shapes: N occurrences, D width, P components kept.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import LayerChoice
from elmore.errors import ConfigError, DataError
from elmore.probe.cosine import normalize
from elmore.probe.occurrences import Occurrence

Method = Literal["pca", "tsne"]
Progress = Callable[[float, int], None]
"""Called with the fraction done, 0 to 1, and the number of occurrences embedded."""

_COMPONENTS = 30
_MAX_CLUSTERS = 8  # the number of distinguishable colours
_TOLERANCE = 1e-4  # points closer than this are the same point


@dataclass(frozen=True)
class MappedOccurrence:
    """An occurrence with its coordinates and its cluster; cluster 0 is the largest."""

    tokens: tuple[str, ...]
    start: int
    end: int
    sense: str | None
    cluster: int
    x: float
    y: float


@dataclass(frozen=True)
class OccurrenceMap:
    """All occurrences of a word on a plane."""

    word: str
    layers: str
    method: Method
    variance: tuple[float, ...] | None
    """Fraction of the variance on each axis, with PCA."""
    num_found: int
    """Occurrences in the text, from which these were sampled."""
    num_clusters: int
    silhouette: float | None
    """None if there is only one cluster."""
    purity: float | None
    """None if no sense is annotated, like `adjusted_rand`."""
    adjusted_rand: float | None
    uses: tuple[MappedOccurrence, ...]


def embed_occurrences(
    elmo: Embedder,
    occurrences: Sequence[Occurrence],
    layers: LayerChoice,
    progress: Progress | None = None,
) -> Float[np.ndarray, "N D"]:
    """Return one vector per occurrence: the mean over its tokens."""
    if layers == "all":
        raise ConfigError("a map has one vector per occurrence: pass one layer, not 'all'")
    rows = []
    embedded = elmo.stream((one.tokens for one in occurrences), layers=layers)
    for one, sentence in zip(occurrences, embedded, strict=True):
        rows.append(sentence.vectors[one.start : one.end].mean(axis=0))
        if progress:
            progress(len(rows) / len(occurrences), len(rows))
    return np.stack(rows)


def map_occurrences(
    word: str,
    occurrences: Sequence[Occurrence],
    vectors: Float[np.ndarray, "N D"],
    *,
    layers: str,
    method: Method = "pca",
    num_clusters: int | None = None,
    num_found: int | None = None,
    seed: int = 0,
) -> OccurrenceMap:
    """Cluster occurrences and place them on a plane.

    Without `num_clusters` the best silhouette selects it. `layers` is the layer that the title
    names, `num_found` the number of occurrences in the text, if these are a sample.
    """
    points, variance = _principal_components(vectors)
    clusters, silhouette = _cluster(points, num_clusters, seed)
    plane = points[:, :2] if method == "pca" else _tsne(points, seed)
    known = [(one.sense, own) for one, own in zip(occurrences, clusters, strict=True) if one.sense]
    return OccurrenceMap(
        word,
        layers,
        method,
        tuple(variance[:2].tolist()) if method == "pca" else None,
        len(occurrences) if num_found is None else num_found,
        int(clusters.max()) + 1,
        silhouette,
        purity(known) if known else None,
        _adjusted_rand(known) if known else None,
        tuple(
            MappedOccurrence(tuple(one.tokens), one.start, one.end, one.sense, cluster, x, y)
            for one, cluster, (x, y) in zip(
                occurrences, clusters.tolist(), plane.tolist(), strict=True
            )
        ),
    )


def purity(known: Sequence[tuple[Any, Any]]) -> float:
    """Return the fraction of (sense, cluster) pairs with the cluster's most frequent sense."""
    counts = Counter(known)
    largest = {
        cluster: max(count for (_, own), count in counts.items() if own == cluster)
        for cluster in {cluster for _, cluster in known}
    }
    return sum(largest.values()) / len(known)


def _adjusted_rand(known: Sequence[tuple[Any, Any]]) -> float:
    metrics = _sklearn("metrics")
    senses, clusters = zip(*known, strict=True)
    return float(metrics.adjusted_rand_score(senses, clusters))


def _principal_components(
    vectors: Float[np.ndarray, "N D"],
) -> tuple[Float[np.ndarray, "N P"], Float[np.ndarray, " P"]]:
    """Return the coordinates, and the fraction of the variance, of each component."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    residual = vectors - mean
    is_rounding = np.linalg.norm(residual, axis=1) < _TOLERANCE * np.linalg.norm(mean)
    residual[is_rounding] = 0.0
    centred = normalize(residual)
    centred -= centred.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    largest = left[np.abs(left).argmax(axis=0), np.arange(left.shape[1])]
    left *= np.sign(largest)  # the sign of a component is arbitrary: make it reproducible
    leading = slice(0, max(2, min(_COMPONENTS, len(singular))))
    points = (left * singular)[:, leading]
    variance = np.square(singular) / max(np.square(singular).sum(), np.finfo(np.float64).tiny)
    missing = max(0, 2 - points.shape[1])  # two occurrences have only one component
    return np.pad(points, ((0, 0), (0, missing))), np.pad(variance[leading], (0, missing))


def _cluster(
    points: Float[np.ndarray, "N P"], number: int | None, seed: int
) -> tuple[Int[np.ndarray, " N"], float | None]:
    """Return the cluster of each point, the largest being 0, and the silhouette."""
    distinct = len(np.unique(np.round(points / _TOLERANCE), axis=0))
    if number is not None and not 1 <= number <= distinct:
        raise ConfigError(
            f"--clusters {number}: only {distinct} occurrences differ; pass 1 to {distinct}"
        )
    limit = min(_MAX_CLUSTERS, distinct, len(points) - 1)
    choices = [number] if number else range(2, limit + 1)
    best, labels = None, np.zeros(len(points), dtype=int)
    for count in choices:
        own = _k_means(points, count, seed)
        score = _silhouette(points, own)
        if number or best is None or (score is not None and score > best):
            best, labels = score, own
    by_size = [cluster for cluster, _ in Counter(labels.tolist()).most_common()]
    rank_of = {cluster: rank for rank, cluster in enumerate(by_size)}
    return np.array([rank_of[cluster] for cluster in labels.tolist()]), best


def _k_means(points: Float[np.ndarray, "N P"], count: int, seed: int) -> Int[np.ndarray, " N"]:
    means = _sklearn("cluster").KMeans(count, n_init=10, random_state=seed)
    return means.fit_predict(points)


def _silhouette(points: Float[np.ndarray, "N P"], own: Int[np.ndarray, " N"]) -> float | None:
    if not 1 < len(set(own.tolist())) < len(points):
        return None
    return float(_sklearn("metrics").silhouette_score(points, own))


def _tsne(points: Float[np.ndarray, "N P"], seed: int) -> Float[np.ndarray, "N 2"]:
    if len(points) < 4:
        raise DataError(
            f"t-SNE needs four occurrences or more, found {len(points)}; pass --method pca"
        )
    if not points.any():  # all vectors are equal
        return np.zeros((len(points), 2))
    perplexity = min(30.0, (len(points) - 1) / 3)
    plane = _sklearn("manifold").TSNE(perplexity=perplexity, init="pca", random_state=seed)
    return plane.fit_transform(points)


def _sklearn(module: str) -> Any:  # noqa: ANN401 -- the package
    try:
        import sklearn.cluster
        import sklearn.manifold
        import sklearn.metrics
    except ImportError as error:
        raise DataError(
            "a map of occurrences needs scikit-learn: pip install 'elmore[viz]'"
        ) from error
    return getattr(sklearn, module)
