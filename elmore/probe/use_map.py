"""The uses of a word as points on a plane: like uses lie together, and form clusters.

Vectors are centred, scaled to length one and turned onto their main directions (PCA), of which the
first few dozen are kept: the rest is noise to a distance. K-means divides these points; into how
many clusters, the silhouette (Rousseeuw, 1987) decides: how much nearer a use is to its own cluster
than to the next, from -1 to 1. The plane is the first two directions, or t-SNE of all of them.

Where senses are known, two numbers say how well the clusters, which know nothing of them, agree:
purity, the share of uses whose sense is the most frequent of their cluster, which grows with the
number of clusters, and the adjusted Rand index (Hubert and Arabie, 1985): 0 for chance, 1 for the
same division.

Shapes: N uses, D width, P directions kept.
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
from elmore.probe.cosine import unit
from elmore.probe.uses import Use

Method = Literal["pca", "tsne"]
Progress = Callable[[float, int], None]
"""What is done, 0 to 1, and how many uses that was."""

_DIRECTIONS = 30
_MOST_CLUSTERS = 8  # as many as can be told apart by colour
_SAME = 1e-4  # nearer than this is one and the same point


@dataclass(frozen=True)
class Placed:
    """A use, where it lies, and in which cluster: 0 is the largest."""

    tokens: tuple[str, ...]
    start: int
    end: int
    sense: str | None
    cluster: int
    x: float
    y: float


@dataclass(frozen=True)
class UseMap:
    """All uses of a word on a plane."""

    word: str
    layers: str
    method: Method
    variance: tuple[float, ...] | None
    """The shares of the two directions, with PCA."""
    num_found: int
    """Uses in the text, of which these were drawn."""
    num_clusters: int
    silhouette: float | None
    """Of the clusters; None where there is only one."""
    purity: float | None
    """None where no sense is known, as for the next."""
    adjusted_rand: float | None
    uses: tuple[Placed, ...]


def vectors_of(
    elmo: Embedder, uses: Sequence[Use], layers: LayerChoice, progress: Progress | None = None
) -> Float[np.ndarray, "N D"]:
    """Embed the sentences of uses; a use of several tokens is their mean."""
    if layers == "all":
        raise ConfigError("a map has one vector per use: layers 'all' has no place in it")
    rows = []
    found = elmo.stream((use.tokens for use in uses), layers=layers)
    for use, sentence in zip(uses, found, strict=True):
        rows.append(sentence.vectors[use.start : use.end].mean(axis=0))
        if progress:
            progress(len(rows) / len(uses), len(rows))
    return np.stack(rows)


def draw(
    word: str,
    uses: Sequence[Use],
    vectors: Float[np.ndarray, "N D"],
    *,
    layers: str,
    method: Method = "pca",
    num_clusters: int | None = None,
    num_found: int | None = None,
    seed: int = 0,
) -> UseMap:
    """Divide uses into clusters, and lay them out; without a number, the silhouette chooses it."""
    points, shares = _directions(vectors)
    clusters, silhouette = _clusters(points, num_clusters, seed)
    plane = points[:, :2] if method == "pca" else _tsne(points, seed)
    known = [(use.sense, own) for use, own in zip(uses, clusters, strict=True) if use.sense]
    return UseMap(
        word,
        layers,
        method,
        tuple(shares[:2].tolist()) if method == "pca" else None,
        len(uses) if num_found is None else num_found,
        int(clusters.max()) + 1,
        silhouette,
        purity(known) if known else None,
        _adjusted_rand(known) if known else None,
        tuple(
            Placed(tuple(use.tokens), use.start, use.end, use.sense, cluster, x, y)
            for use, cluster, (x, y) in zip(uses, clusters.tolist(), plane.tolist(), strict=True)
        ),
    )


def purity(known: Sequence[tuple[Any, Any]]) -> float:
    """Give the share of pairs (sense, cluster) whose sense is the most frequent of the cluster."""
    together = Counter(known)
    largest = {
        cluster: max(count for (_, own), count in together.items() if own == cluster)
        for cluster in {cluster for _, cluster in known}
    }
    return sum(largest.values()) / len(known)


def _adjusted_rand(known: Sequence[tuple[Any, Any]]) -> float:
    metrics = _sklearn("metrics")
    senses, clusters = zip(*known, strict=True)
    return float(metrics.adjusted_rand_score(senses, clusters))


def _directions(
    vectors: Float[np.ndarray, "N D"],
) -> tuple[Float[np.ndarray, "N P"], Float[np.ndarray, " P"]]:
    """Turn vectors onto their main directions; give the share of the variance of each, too."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    rest = vectors - mean
    rest[np.linalg.norm(rest, axis=1) < _SAME * np.linalg.norm(mean)] = 0.0  # rounding alone
    centred = unit(rest)
    centred -= centred.mean(axis=0)
    left, spread, _ = np.linalg.svd(centred, full_matrices=False)
    left *= np.sign(
        left[np.abs(left).argmax(axis=0), np.arange(left.shape[1])]
    )  # a side of its own
    kept = slice(0, max(2, min(_DIRECTIONS, len(spread))))
    points = (left * spread)[:, kept]
    shares = np.square(spread) / max(np.square(spread).sum(), np.finfo(np.float64).tiny)
    missing = max(0, 2 - points.shape[1])  # two uses have but one direction
    return np.pad(points, ((0, 0), (0, missing))), np.pad(shares[kept], (0, missing))


def _clusters(
    points: Float[np.ndarray, "N P"], number: int | None, seed: int
) -> tuple[Int[np.ndarray, " N"], float | None]:
    """Divide points; give each its cluster, the largest first, and the silhouette."""
    distinct = len(np.unique(np.round(points / _SAME), axis=0))
    if number is not None and not 1 <= number <= distinct:
        raise ConfigError(
            f"--clusters {number}: there are {distinct} uses that differ; pass 1 to {distinct}"
        )
    most = min(_MOST_CLUSTERS, distinct, len(points) - 1)
    choices = [number] if number else range(2, most + 1)
    best, found = None, np.zeros(len(points), dtype=int)
    for count in choices:
        own = _k_means(points, count, seed)
        score = _silhouette(points, own)
        if number or best is None or (score is not None and score > best):
            best, found = score, own
    by_size = [cluster for cluster, _ in Counter(found.tolist()).most_common()]
    place = {cluster: rank for rank, cluster in enumerate(by_size)}
    return np.array([place[cluster] for cluster in found.tolist()]), best


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
            f"t-SNE lays out four uses or more, and there are {len(points)}; pass --method pca"
        )
    if not points.any():  # all alike: there is nothing to lay out
        return np.zeros((len(points), 2))
    near = min(30.0, (len(points) - 1) / 3)
    plane = _sklearn("manifold").TSNE(perplexity=near, init="pca", random_state=seed)
    return plane.fit_transform(points)


def _sklearn(module: str) -> Any:  # noqa: ANN401 -- the package
    try:
        import sklearn.cluster
        import sklearn.manifold
        import sklearn.metrics
    except ImportError as error:
        raise DataError("a map of uses needs scikit-learn: pip install 'elmore[viz]'") from error
    return getattr(sklearn, module)
