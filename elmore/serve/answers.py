"""An answer as bytes, in the form that `Accept` asks for: JSON, a numpy file, or an Arrow stream.

The numpy file of /embed holds the vectors of all texts one after another, along the axis of tokens;
the header `X-Elmore-Lengths` says how many tokens each text has, so that `numpy.split` parts them.
The Arrow stream is record batches in the layout of our parquet files.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.embed.jobs.arrow import Layout
from elmore.embed.jobs.journal import Row
from elmore.serve import pieces

JSON, NPY, ARROW = "application/json", "application/x-npy", "application/vnd.apache.arrow.stream"
LENGTHS = "X-Elmore-Lengths"
Form = Literal["application/json", "application/x-npy", "application/vnd.apache.arrow.stream"]
FORMS: tuple[Form, ...] = (JSON, NPY, ARROW)


class Answer(NamedTuple):
    """A body, which is written piece by piece, and what its headers say of it."""

    pieces: Callable[[], Iterator[bytes]]
    """Begins anew at each call; a piece is computed when it is asked for."""
    form: Form
    headers: dict[str, str]

    @property
    def body(self) -> bytes:
        """All pieces at once: for an answer that is small."""
        return b"".join(self.pieces())


def chosen(accept: str) -> Form | None:
    """Choose what is liked best of what we have; None where nothing of it will do.

    What names a form says more of it than what names it among others; of two that are liked alike
    the one that is named first is chosen.
    """
    asked: dict[str, float] = {}
    for part in (accept or "*/*").split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        asked.setdefault(kind, _quality(parameters))
    named = [form for kind in asked for form in FORMS if form == kind]
    best, most = None, 0.0
    for form in (*named, *FORMS):
        kinds = (kind for kind in (form, "application/*", "*/*") if kind in asked)
        quality = asked.get(next(kinds, ""), 0.0)
        if quality > most:
            best, most = form, quality
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


def embedded(
    tokens: Sequence[list[str]],
    vectors: Sequence[Float[np.ndarray, "*L T D"]],
    nothing: Float[np.ndarray, "*L 0 D"],
    form: Form,
) -> Answer:
    """Write the vectors of every word of every text; `nothing` is those of no word."""
    if form == NPY:
        lengths = [len(words) for words in tokens]
        shape = (*nothing.shape[:-2], sum(lengths), nothing.shape[-1])
        # With all layers, the first layer of every text stands before the second of any.
        layers = range(len(nothing)) if nothing.ndim == 3 else [...]
        arrays = [array[layer] for layer in layers for array in vectors]
        return _npy(shape, arrays, {LENGTHS: ",".join(map(str, lengths))})
    if form == ARROW:
        return _arrow(tokens, vectors, nothing, pooled=False)
    return Answer(lambda: pieces.gather(pieces.dump_sentences(tokens, vectors)), form, {})


def encoded(tokens: Sequence[list[str]], vectors: Float[np.ndarray, "N D"], form: Form) -> Answer:
    """Write one vector for each text."""
    if form == NPY:
        return _npy(vectors.shape, [vectors], {})
    if form == ARROW:
        return _arrow(tokens, vectors, vectors, pooled=True)
    return Answer(
        lambda: pieces.gather(
            itertools.chain([b'{"vectors": '], pieces.dump_array(vectors), [b"}"])
        ),
        form,
        {},
    )


def _npy(shape: tuple[int, ...], arrays: Sequence[np.ndarray], headers: dict[str, str]) -> Answer:
    """Write arrays that together are one of this shape."""
    head = pieces.npy_header(shape)
    length = {"Content-Length": str(len(head) + 4 * math.prod(shape))}
    return Answer(
        lambda: pieces.gather(itertools.chain([head], pieces.array_bytes(arrays))),
        NPY,
        headers | length,
    )


def _arrow(
    tokens: Sequence[list[str]],
    vectors: Sequence[np.ndarray] | np.ndarray,
    like: np.ndarray,
    *,
    pooled: bool,
) -> Answer:
    num_layers = len(like) if like.ndim == 3 else None
    layout = Layout(width=like.shape[-1], num_layers=num_layers, pooled=pooled)
    rows = [Row(i, "", *pair) for i, pair in enumerate(zip(tokens, vectors, strict=True))]
    return Answer(lambda: pieces.gather(pieces.arrow_stream(rows, layout)), ARROW, {})
