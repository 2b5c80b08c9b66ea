"""The nearest of many vectors, exactly: every one of them is looked at.

Shapes: N uses, D width, M some of the uses.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float16, Int

_BLOCK = 8192  # rows that are float32 at a time: they stay in the processor's own memory


class Nearest(NamedTuple):
    """Uses by falling similarity."""

    rows: Int[np.ndarray, " K"]
    similarities: Float[np.ndarray, " K"]


def search(
    vectors: Float16[np.ndarray, "N D"],
    query: Float[np.ndarray, " D"],
    k: int,
    *,
    among: Int[np.ndarray, " M"] | None = None,
    without: Int[np.ndarray, " E"],
) -> Nearest:
    """Give the k uses nearest to the query: among all or some, and without some; ties by place."""
    if among is None:
        similarities = _similarities(vectors, query)
        similarities[without] = -np.inf
        return best(np.arange(len(vectors)), similarities, k)
    among = np.setdiff1d(among, without, assume_unique=True)
    found = [
        _similarities(vectors[among[begin : begin + _BLOCK]], query)
        for begin in range(0, len(among), _BLOCK)
    ]
    return best(among, np.concatenate([np.zeros(0, np.float32), *found]), k)


def _similarities(
    vectors: Float16[np.ndarray, "N D"], query: Float[np.ndarray, " D"]
) -> Float[np.ndarray, " N"]:
    found = np.empty(len(vectors), np.float32)
    for begin in range(0, len(vectors), _BLOCK):
        block = vectors[begin : begin + _BLOCK].astype(np.float32)
        np.matmul(block, query, out=found[begin : begin + _BLOCK])
    return found


def best(rows: Int[np.ndarray, " M"], similarities: Float[np.ndarray, " M"], k: int) -> Nearest:
    """Choose the k highest that are there at all, in order; of equals the first."""
    k = min(k, int(np.isfinite(similarities).sum()))
    if not k:
        return Nearest(rows[:0], similarities[:0])
    least = np.partition(similarities, len(similarities) - k)[len(similarities) - k]
    high = np.flatnonzero(similarities >= least)
    order = high[np.lexsort((rows[high], -similarities[high]))[:k]]
    return Nearest(rows[order], similarities[order])
