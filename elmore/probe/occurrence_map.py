"""Draw the occurrences of a word on a plane, in clusters of similar ones.

Vectors are centred, scaled to unit length and projected onto their principal components (PCA), of
which the first few dozen are kept because the rest is noise. These points are clustered
(`clustering.py`). The plane is the first two components, or t-SNE of all.

Where senses are annotated, two scores compare them with the clusters: purity, the fraction of
occurrences whose sense is the most frequent of their cluster, which grows with the number of
clusters; and the adjusted Rand index (Hubert and Arabie, 1985), 0 by chance and 1 if identical.

Shapes: N occurrences, D width, P components kept.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import LayerChoice
from elmore.errors import ConfigError, DataError
from elmore.probe.clustering import MAX_CLUSTERS, cluster_points
from elmore.probe.cosine import normalize
from elmore.probe.occurrences import Occurrence

Method = Literal["pca", "tsne"]
Progress = Callable[[float, int], None]
"""Called with the fraction done, 0 to 1, and the number of occurrences embedded."""

_COMPONENTS = 30
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
    max_clusters: int = MAX_CLUSTERS,
    num_found: int | None = None,
    seed: int = 0,
) -> OccurrenceMap:
    """Cluster occurrences and place them on a plane.

    Without `num_clusters` the best silhouette selects it, up to `max_clusters`. `layers` is the
    layer that the title names, `num_found` the number of occurrences in the text, if these are a
    sample.
    """
    points, variance = _principal_components(vectors)
    clusters, silhouette = cluster_points(points, num_clusters, seed, most=max_clusters)
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
        adjusted_rand(known) if known else None,
        tuple(
            MappedOccurrence(tuple(one.tokens), one.start, one.end, one.sense, cluster, x, y)
            for one, cluster, (x, y) in zip(
                occurrences, clusters.tolist(), plane.tolist(), strict=True
            )
        ),
    )


def central_occurrence(occurrences: Sequence[MappedOccurrence]) -> MappedOccurrence:
    """Return the occurrence that is nearest to the middle of all on the map."""
    x, y = (sum(getattr(one, axis) for one in occurrences) / len(occurrences) for axis in "xy")
    return min(occurrences, key=lambda one: (one.x - x) ** 2 + (one.y - y) ** 2)


def format_occurrence(occurrence: MappedOccurrence | Occurrence, context: int = 12) -> str:
    """Return an occurrence in brackets with the words around it."""
    first, last = (
        max(0, occurrence.start - context),
        min(len(occurrence.tokens), occurrence.end + context),
    )
    parts = [
        *(["…"] if first else []),
        *occurrence.tokens[first : occurrence.start],
        f"[{' '.join(occurrence.tokens[occurrence.start : occurrence.end])}]",
        *occurrence.tokens[occurrence.end : last],
        *(["…"] if last < len(occurrence.tokens) else []),
    ]
    return " ".join(parts)


def purity(known: Sequence[tuple[Any, Any]]) -> float:
    """Return the fraction of (sense, cluster) pairs with the cluster's most frequent sense."""
    counts = Counter(known)
    largest = {
        cluster: max(count for (_, own), count in counts.items() if own == cluster)
        for cluster in {cluster for _, cluster in known}
    }
    return sum(largest.values()) / len(known)


def adjusted_rand(known: Sequence[tuple[Any, Any]]) -> float:
    """Return the adjusted Rand index of (sense, cluster) pairs."""
    both = _num_pairs(known)
    senses, clusters = (_num_pairs([pair[side] for pair in known]) for side in (0, 1))
    expected = senses * clusters / max(1, math.comb(len(known), 2))
    most = (senses + clusters) / 2
    return (both - expected) / (most - expected) if most != expected else 1.0


def _num_pairs(values: Sequence[Any]) -> int:
    """Return how many pairs of equal values there are."""
    return sum(math.comb(count, 2) for count in Counter(values).values())


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


def _tsne(points: Float[np.ndarray, "N P"], seed: int) -> Float[np.ndarray, "N 2"]:
    if len(points) < 4:
        raise DataError(
            f"t-SNE needs four occurrences or more, found {len(points)}; pass --method pca"
        )
    if not points.any():  # all vectors are equal
        return np.zeros((len(points), 2))
    perplexity = min(30.0, (len(points) - 1) / 3)
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise DataError(
            "t-SNE needs scikit-learn: pip install 'elmore[viz]'; --method pca needs nothing"
        ) from error
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)
