"""An answer as bytes, in the form that `Accept` asks for: JSON, a numpy file, or an Arrow stream.

The numpy file of /embed holds the vectors of all texts one after another, along the axis of tokens;
the header `X-Elmore-Lengths` says how many tokens each text has, so that `numpy.split` parts them.
The Arrow stream is one record batch in the layout of our parquet files.
"""

import io
import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.embed import tables
from elmore.embed.parts import Row

JSON, NPY, ARROW = "application/json", "application/x-npy", "application/vnd.apache.arrow.stream"
LENGTHS = "X-Elmore-Lengths"
DIGITS = 7  # after the point: float32 has no more for numbers around one
Form = Literal["application/json", "application/x-npy", "application/vnd.apache.arrow.stream"]
FORMS: tuple[Form, ...] = (JSON, NPY, ARROW)


class Answer(NamedTuple):
    """A body and what its headers say of it."""

    body: bytes
    form: Form
    headers: dict[str, str]


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
        joined = np.concatenate([nothing, *vectors], axis=-2)
        return Answer(_npy(joined), form, {LENGTHS: ",".join(str(len(words)) for words in tokens)})
    if form == ARROW:
        rows = [Row(i, "", *pair) for i, pair in enumerate(zip(tokens, vectors, strict=True))]
        return Answer(_arrow(rows, nothing, pooled=False), form, {})
    pairs = zip(tokens, vectors, strict=True)
    sentences = [
        b'{"tokens": %b, "vectors": %b}' % (written(words), numbers(array))
        for words, array in pairs
    ]
    return Answer(b'{"sentences": [%b]}' % b", ".join(sentences), form, {})


def encoded(tokens: Sequence[list[str]], vectors: Float[np.ndarray, "N D"], form: Form) -> Answer:
    """Write one vector for each text."""
    if form == NPY:
        return Answer(_npy(vectors), form, {})
    if form == ARROW:
        rows = [Row(i, "", *pair) for i, pair in enumerate(zip(tokens, vectors, strict=True))]
        return Answer(_arrow(rows, vectors, pooled=True), form, {})
    return Answer(b'{"vectors": %b}' % numbers(vectors), form, {})


def written(value: Any) -> bytes:  # noqa: ANN401 -- whatever JSON can say
    """Write JSON; half characters stay escaped."""
    return json.dumps(value, allow_nan=False).encode()


def numbers(array: Float[np.ndarray, "..."]) -> bytes:
    """Write an array as lists, row by row: one call for all of it would stop every other thread."""
    if array.ndim > 1:
        return b"[%b]" % b", ".join(numbers(part) for part in array)
    return json.dumps(np.round(array.astype(np.float64), DIGITS).tolist()).encode()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _arrow(rows: Sequence[Row], like: np.ndarray, *, pooled: bool) -> bytes:
    import pyarrow

    num_layers = len(like) if like.ndim == 3 else None
    layout = tables.Layout(width=like.shape[-1], num_layers=num_layers, pooled=pooled)
    batch = tables.batch(rows, layout)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()
