"""Exact nearest-neighbour search: compare the query with every vector.

Shapes: N occurrences, D width, M some of the occurrences, E excluded occurrences, K results.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float16, Int

_BLOCK = 8192  # rows converted to float32 at a time, so that they stay in the processor's cache


class Nearest(NamedTuple):
    """Occurrences by decreasing similarity."""

    rows: Int[np.ndarray, " K"]
    similarities: Float[np.ndarray, " K"]


def search(
    vectors: Float16[np.ndarray, "N D"],
    query: Float[np.ndarray, " D"],
    k: int,
    *,
    among: Int[np.ndarray, " M"] | None = None,
    exclude: Int[np.ndarray, " E"],
) -> Nearest:
    """Return the k rows nearest to the query, optionally only rows in `among`; ties by row."""
    if among is None:
        similarities = _cosines(vectors, query)
        similarities[exclude] = -np.inf
        return _top_k(np.arange(len(vectors)), similarities, k)
    among = np.setdiff1d(among, exclude, assume_unique=True)
    blocks = [
        _cosines(vectors[among[begin : begin + _BLOCK]], query)
        for begin in range(0, len(among), _BLOCK)
    ]
    return _top_k(among, np.concatenate([np.zeros(0, np.float32), *blocks]), k)


def _cosines(
    vectors: Float16[np.ndarray, "N D"], query: Float[np.ndarray, " D"]
) -> Float[np.ndarray, " N"]:
    cosines = np.empty(len(vectors), np.float32)
    for begin in range(0, len(vectors), _BLOCK):
        block = vectors[begin : begin + _BLOCK].astype(np.float32)
        np.matmul(block, query, out=cosines[begin : begin + _BLOCK])
    return cosines


def _top_k(rows: Int[np.ndarray, " M"], similarities: Float[np.ndarray, " M"], k: int) -> Nearest:
    """Return the k highest finite similarities in order; among equals the first row wins."""
    k = min(k, int(np.isfinite(similarities).sum()))
    if not k:
        return Nearest(rows[:0], similarities[:0])
    lowest = np.partition(similarities, len(similarities) - k)[len(similarities) - k]
    candidates = np.flatnonzero(similarities >= lowest)
    order = candidates[np.lexsort((rows[candidates], -similarities[candidates]))[:k]]
    return Nearest(rows[order], similarities[order])
