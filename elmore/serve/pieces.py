"""Bodies as pieces of bounded size, each computed when it is asked for.

A body of vectors may be hundreds of megabytes. Written piece by piece, no more of it exists than
the client is about to take. What is written refers to the arrays and does not join or copy them.

Shapes: L layers, T tokens, D width.
"""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from elmore.embed.jobs import arrow
from elmore.embed.jobs.journal import Row

PIECE_BYTES = 1 << 16
BATCH_BYTES = 1 << 20
"""Of vectors in one record batch of an Arrow stream; a larger text is a batch by itself."""
DIGITS = 7  # after the point: float32 has no more for numbers around one


def gather(parts: Iterable[Any]) -> Iterator[bytes]:
    """Join small parts and split large ones: pieces of PIECE_BYTES and less than twice that.

    Only the last piece may be smaller. A part is anything with a buffer of bytes.
    """
    held = bytearray()
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), PIECE_BYTES):
            held += view[start : start + PIECE_BYTES]
            if len(held) >= PIECE_BYTES:
                yield bytes(held)
                held = bytearray()
    if held:
        yield bytes(held)


def dump_json(value: Any) -> bytes:  # noqa: ANN401 -- whatever JSON can say
    """Write JSON; half characters stay escaped."""
    return json.dumps(value, allow_nan=False).encode()


def dump_array(array: Float[np.ndarray, "..."]) -> Iterator[bytes]:
    """Write an array as JSON lists, row by row: one call for all would stop every other thread."""
    if array.ndim == 1:
        yield json.dumps(np.round(array.astype(np.float64), DIGITS).tolist()).encode()
        return
    yield b"["
    for number, part in enumerate(array):
        yield b", " if number else b""
        yield from dump_array(part)
    yield b"]"


def dump_sentences(
    tokens: Sequence[list[str]], vectors: Sequence[Float[np.ndarray, "*L T D"]]
) -> Iterator[bytes]:
    """Write what /embed answers as JSON."""
    yield b'{"sentences": ['
    for number, (words, array) in enumerate(zip(tokens, vectors, strict=True)):
        yield b", " if number else b""
        yield b'{"tokens": %b, "vectors": ' % dump_json(words)
        yield from dump_array(array)
        yield b"}"
    yield b"]}"


def npy_header(shape: tuple[int, ...]) -> bytes:
    """Write the beginning of a numpy file of float32."""
    found = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(found, described)
    return found.getvalue()


def array_bytes(arrays: Iterable[Float[np.ndarray, "..."]]) -> Iterator[np.ndarray]:
    """Give the numbers of arrays as a numpy file has them, one array after another."""
    for array in arrays:
        yield np.ascontiguousarray(array, "<f4").reshape(-1).view(np.uint8)


def arrow_stream(rows: Sequence[Row], layout: arrow.Layout) -> Iterator[Any]:
    """Write rows as record batches of some BATCH_BYTES."""
    import pyarrow

    sink = _Sink()
    with pyarrow.ipc.new_stream(pyarrow.PythonFile(sink, "w"), arrow.schema(layout)) as stream:
        for batch in _batches(rows):
            stream.write_batch(arrow.batch(batch, layout))
            yield from sink.take()
    yield from sink.take()


def _batches(rows: Sequence[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        if batch and size + row.vectors.nbytes > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row.vectors.nbytes
    if batch:
        yield batch


class _Sink(io.RawIOBase):
    """A file that keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 -- Arrow's own buffers
        self._parts.append(data)
        return len(data)

    def take(self) -> list[Any]:
        """Give what was written since it was last asked for."""
        parts, self._parts = self._parts, []
        return parts
