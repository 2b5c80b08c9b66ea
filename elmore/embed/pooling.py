"""Pool token vectors into one vector per text: mean, maximum, or a learned pooling.

Contextual vectors share a few strong directions, so the plain means of any two texts are similar.
`learn` gives rare words more weight (SIF: Arora et al., 2017), then removes what all texts have in
common: their mean, and the directions of largest variance (Mu and Viswanath, 2018).
`weights/pooling.py` has the equations.

All of it is learned from a sample beforehand: a text's vector does not depend on other texts.

Shapes: L layers, T tokens, D width, K pooled width, n and m texts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

import numpy as np
from jaxtyping import Float

from elmore.embed.outputs import LayerChoice
from elmore.errors import ConfigError, DataError
from elmore.weights.pooling import TextPooling

BLOCK = 256  # texts per update of the covariance
NEGLIGIBLE = 1e-10  # fraction of the variance that is rounding error


Pool = Literal["mean", "max"] | TextPooling
PoolChoice = Pool | str | None
"""A pooling, the name of one, or None for that of the model."""


def find_pooling(
    poolings: Mapping[str, TextPooling], pool: PoolChoice, layers: LayerChoice | None
) -> tuple[Pool, LayerChoice]:
    """Return the pooling of a name, and the layers that it takes.

    Without a choice of pooling and layers it is the first one of the model, and the mean if the
    model has none.

    Raises:
        ConfigError: There is no such pooling, or it takes other layers.
    """
    if pool is None:
        pool = next(iter(poolings), "mean") if layers is None else "mean"
    if isinstance(pool, str) and pool not in ("mean", "max"):
        if pool not in poolings:
            names = ", ".join(map(repr, ["mean", "max", *poolings]))
            raise ConfigError(f"pool={pool!r}: this model has {names}; pass one, or a TextPooling")
        pool = poolings[pool]
    takes_all = isinstance(pool, TextPooling) and pool.all_layers
    layers = layers if layers is not None else "all" if takes_all else "average"
    if takes_all and layers != "all":
        raise ConfigError(f"layers={layers!r}: this pooling takes all layers; pass no layers")
    if layers == "all" and not takes_all:
        raise ConfigError("pooling returns one vector per text: layers='all' is not possible")
    return pool, layers


def pooled_width(pool: Pool, width: int) -> int:
    """Return the width of a pooled vector, given the width of a layer."""
    return pool.width if isinstance(pool, TextPooling) else width


def pool(
    tokens: Sequence[str], vectors: Float[np.ndarray, "*L T D"], how: Pool
) -> Float[np.ndarray, " K"]:
    """Return one float32 vector for a text, zeros for an empty one."""
    if not isinstance(how, TextPooling) and how not in ("mean", "max"):
        raise ConfigError(f"pool={how!r}: expected 'mean', 'max' or a TextPooling")
    if isinstance(how, TextPooling) and how.all_layers and vectors.ndim == 3:
        vectors = np.concatenate(list(vectors), axis=1)  # (T, L * D)
    _check(tokens, vectors)
    width = vectors.shape[1]
    if isinstance(how, TextPooling) and len(how.mean) != width:
        raise DataError(
            f"this pooling was learned for width {len(how.mean)}, the vectors have width {width}; "
            "learn one with this model"
        )
    if len(tokens) == 0:
        pooled = np.zeros(pooled_width(how, width))
    elif isinstance(how, TextPooling):
        pooled = how.correct(_average(vectors, how.weigh(tokens, vectors)))
    elif how == "max":
        pooled = vectors.max(axis=0)
    else:
        pooled = _average(vectors, np.ones(len(tokens)))
    return pooled.astype(np.float32)


def pool_texts(
    texts: Iterable[tuple[Sequence[str], Float[np.ndarray, "*L T D"]]], how: Pool, width: int
) -> Float[np.ndarray, "n K"]:
    """Return one vector for each text, given as its tokens and their vectors of that width."""
    vectors = [pool(tokens, array, how) for tokens, array in texts]
    empty = np.zeros((0, pooled_width(how, width)), np.float32)
    return np.stack(vectors) if vectors else empty


def learn(
    sample: Iterable[tuple[Sequence[str], Float[np.ndarray, "T D"]]],
    *,
    weighted: bool = True,
    remove: int = 3,
    smoothing: float = 1e-3,
) -> TextPooling:
    """Learn a pooling from a sample of texts, each given as its tokens and their vectors.

    The sample is iterated twice, because words are counted before the first text can be averaged:
    an iterator is made a list first, anything else needs no more memory than a (D, D) matrix. With
    `weighted=False` all words have the same weight. Up to `remove` directions are removed besides
    the mean; fewer if the sample varies in fewer. Empty texts are skipped.
    """
    if remove < 0 or not 0 < smoothing < math.inf:
        raise ConfigError(f"expected remove >= 0 and smoothing > 0, found {remove} and {smoothing}")
    sample = list(sample) if iter(sample) is sample else sample
    counts = Counter(word for words, _ in sample for word in words) if weighted else Counter()
    total = counts.total()
    frequencies = {word: count / total for word, count in counts.items()}
    weighing = TextPooling(
        frequencies=frequencies,
        mean=np.zeros(0),
        components=np.zeros((0, 0)),
        smoothing=smoothing,
    )

    def averages() -> Iterator[Float[np.ndarray, " D"]]:
        for words, vectors in sample:
            _check(words, vectors)
            if len(words):
                yield _average(vectors, weighing.weigh(words, vectors))

    rest, num_texts, sums, products = averages(), 0, np.zeros(()), np.zeros(())
    while rows := list(islice(rest, BLOCK)):
        block = np.stack(rows)  # (n, D)
        num_texts += len(block)
        sums = sums + block.sum(axis=0)
        products = products + block.T @ block  # (D, D)
    if num_texts < 2:
        raise DataError(f"a pooling needs at least 2 texts with words, found {num_texts}")
    if not np.isfinite(products).all():
        raise DataError("a pooling needs finite vectors; some of these are inf or nan")
    mean = sums / num_texts
    variances, directions = np.linalg.eigh(products / num_texts - np.outer(mean, mean))  # ascending
    least = NEGLIGIBLE * np.trace(products) / num_texts
    removed = [i for i in range(len(mean))[::-1][:remove] if variances[i] > least]
    return replace(weighing, mean=mean, components=directions.T[removed])


def cosine(a: Float[np.ndarray, "n D"], b: Float[np.ndarray, "m D"]) -> Float[np.ndarray, "n m"]:
    """Return the cosine of each row of a with each row of b; 0 for a zero vector."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise DataError(f"expected (texts, width) of one width, found {a.shape} and {b.shape}")
    similarity = normalize(a) @ normalize(b).T
    return np.clip(similarity, -1, 1, out=similarity)


def normalize(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    """Scale each row to length 1; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _average(
    vectors: Float[np.ndarray, "T D"], weights: Float[np.ndarray, " T"]
) -> Float[np.ndarray, " D"]:
    return weights @ vectors.astype(np.float64) / weights.sum()


def _check(tokens: Sequence[str], vectors: Float[np.ndarray, "T D"]) -> None:
    if vectors.ndim != 2 or len(tokens) != len(vectors):
        raise DataError(
            f"{len(tokens)} tokens need vectors of shape ({len(tokens)}, width), found "
            f"{vectors.shape}; layers='all' cannot be pooled"
        )
