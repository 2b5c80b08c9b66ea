"""Pool token vectors to the spans of another tokenisation of the same string.

    vector(span) = sum_t shared(span, t) vectors[t] / sum_t shared(span, t)

where shared counts the characters that the span and our token t have in common.

Shapes: T tokens, S spans, P pairs of a span and a token that overlap, D width.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from elmore.errors import DataError

Span = tuple[int, int]
"""Start and end in a string, in characters; the end is exclusive."""


def pool_to_spans(
    offsets: Sequence[Span],
    vectors: Float[np.ndarray, "*L T D"],
    spans: Sequence[Span],
    *,
    length: int | None = None,
) -> Float[np.ndarray, "*L S D"]:
    """Return one vector per span: the mean of its tokens, weighted by shared characters.

    Spans may overlap, leave gaps and be in any order. A span that overlaps no token (whitespace, or
    an empty span) gets zeros; a span that is exactly a token gets the token's vector to the bit.
    `length` is the length of the string; if it is given, a span that ends after it is an error.
    """
    tokens, targets = _edges(offsets), _edges(spans)
    if vectors.ndim < 2 or vectors.shape[-2] != len(tokens):
        raise DataError(f"{len(tokens)} offsets do not match vectors of shape {vectors.shape}")
    if (tokens[:, 0] > tokens[:, 1]).any() or (tokens[:-1, 1] > tokens[1:, 0]).any():
        raise DataError("the offsets of tokens must be ascending and not overlap")
    _check(targets, length)
    starts, ends = targets.T
    first = np.searchsorted(tokens[:, 1], starts, side="right")
    num_overlaps = np.maximum(np.searchsorted(tokens[:, 0], ends, side="left") - first, 0)  # (S,)
    before = np.cumsum(num_overlaps) - num_overlaps  # pairs of earlier spans
    span_of = np.repeat(np.arange(len(targets)), num_overlaps)  # (P,)
    token_of = np.arange(len(span_of)) + (first - before)[span_of]  # (P,)
    shared = np.minimum(ends[span_of], tokens[token_of, 1])
    shared -= np.maximum(starts[span_of], tokens[token_of, 0])  # (P,)
    totals = np.bincount(span_of, weights=shared, minlength=len(targets))  # (S,)
    pooled = np.zeros((*vectors.shape[:-2], len(targets), vectors.shape[-1]), dtype=vectors.dtype)
    nonempty = (num_overlaps > 0).nonzero()[0]
    if len(nonempty):
        parts = vectors[..., token_of, :].astype(np.float64) * shared[:, None]  # (*L, P, D)
        sums = np.add.reduceat(parts, before[nonempty], axis=-2)
        pooled[..., nonempty, :] = sums / np.maximum(totals[nonempty], 1)[:, None]
    return pooled


def _edges(spans: Sequence[Span]) -> Int[np.ndarray, "S 2"]:
    edges = np.asarray(spans)
    if edges.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise DataError("spans and offsets are pairs of whole numbers: (start, end) in characters")
    return edges.astype(np.int64)


def _check(spans: Int[np.ndarray, "S 2"], length: int | None) -> None:
    reversed_, negative = spans[:, 0] > spans[:, 1], spans[:, 0] < 0
    past = spans[:, 1] > (np.inf if length is None else length)
    for wrong, problem in (
        (reversed_, "ends before it starts"),
        (negative, "starts before the string"),
        (past, f"ends after the string, which has {length} characters"),
    ):
        if wrong.any():
            number = int(wrong.argmax())
            raise DataError(f"span {number} {tuple(spans[number].tolist())} {problem}")
