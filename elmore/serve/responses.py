"""Serialise responses in the media type that `Accept` asks for: JSON, .npy, or an Arrow stream.

The .npy file of /embed holds the vectors of all texts, concatenated along the axis of tokens; the
header `X-Elmore-Lengths` has the number of tokens of each text, for `numpy.split`. The Arrow stream
has the columns of our parquet files.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.embed.jobs.arrow import Layout
from elmore.embed.jobs.journal import Row
from elmore.serve import chunks
from elmore.serve.texts import TokenizedTexts

JSON, NPY, ARROW = "application/json", "application/x-npy", "application/vnd.apache.arrow.stream"
LENGTHS = "X-Elmore-Lengths"
MediaType = Literal["application/json", "application/x-npy", "application/vnd.apache.arrow.stream"]
MEDIA_TYPES: tuple[MediaType, ...] = (JSON, NPY, ARROW)


class Payload(NamedTuple):
    """A body in chunks, its media type, and its headers."""

    chunks: Callable[[], Iterator[bytes]]
    """Starts from the beginning at each call; a chunk is computed when it is needed."""
    media_type: MediaType
    headers: dict[str, str]

    @property
    def body(self) -> bytes:
        """The whole body, for a small response."""
        return b"".join(self.chunks())


def negotiate(accept: str) -> MediaType | None:
    """Return the media type for an Accept header (RFC 9110, 12.5.1); None means 406.

    The highest q wins, exact types beat wildcards, ties go to the first listed.
    """
    accepted: dict[str, float] = {}
    for part in (accept or "*/*").split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        accepted.setdefault(kind, _quality(parameters))
    named = [media_type for kind in accepted for media_type in MEDIA_TYPES if media_type == kind]
    best, highest = None, 0.0
    for media_type in (*named, *MEDIA_TYPES):
        kinds = (kind for kind in (media_type, "application/*", "*/*") if kind in accepted)
        quality = accepted.get(next(kinds, ""), 0.0)
        if quality > highest:
            best, highest = media_type, quality
    return best


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def embed_response(
    texts: TokenizedTexts,
    vectors: Sequence[Float[np.ndarray, "*L T D"]],
    nothing: Float[np.ndarray, "*L 0 D"],
    media_type: MediaType,
) -> Payload:
    """Return the vectors of every token of every text; `nothing` is the array of no token."""
    if media_type == NPY:
        lengths = [len(words) for words in texts.words]
        shape = (*nothing.shape[:-2], sum(lengths), nothing.shape[-1])
        # With all layers, layer 0 of every text comes before layer 1 of any.
        layers = range(len(nothing)) if nothing.ndim == 3 else [...]
        arrays = [array[layer] for layer in layers for array in vectors]
        return _npy(shape, arrays, {LENGTHS: ",".join(map(str, lengths))})
    if media_type == ARROW:
        return _arrow(texts.words, vectors, nothing, pooled=False)
    return Payload(lambda: chunks.rechunk(chunks.dump_sentences(texts, vectors)), media_type, {})


def encode_response(
    tokens: Sequence[list[str]], vectors: Float[np.ndarray, "N D"], media_type: MediaType
) -> Payload:
    """Return one vector per text."""
    if media_type == NPY:
        return _npy(vectors.shape, [vectors], {})
    if media_type == ARROW:
        return _arrow(tokens, vectors, vectors, pooled=True)
    return Payload(
        lambda: chunks.rechunk(
            itertools.chain([b'{"vectors": '], chunks.dump_array(vectors), [b"}"])
        ),
        media_type,
        {},
    )


def _npy(shape: tuple[int, ...], arrays: Sequence[np.ndarray], headers: dict[str, str]) -> Payload:
    """Return arrays that together have this shape."""
    head = chunks.npy_header(shape)
    length = {"Content-Length": str(len(head) + 4 * math.prod(shape))}
    return Payload(
        lambda: chunks.rechunk(itertools.chain([head], chunks.array_bytes(arrays))),
        NPY,
        headers | length,
    )


def _arrow(
    tokens: Sequence[list[str]],
    vectors: Sequence[np.ndarray] | np.ndarray,
    like: np.ndarray,
    *,
    pooled: bool,
) -> Payload:
    num_layers = len(like) if like.ndim == 3 else None
    layout = Layout(width=like.shape[-1], num_layers=num_layers, pooled=pooled)
    rows = [Row(i, "", *pair) for i, pair in enumerate(zip(tokens, vectors, strict=True))]
    return Payload(lambda: chunks.rechunk(chunks.arrow_stream(rows, layout)), ARROW, {})
