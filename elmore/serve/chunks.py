"""Serialise response bodies in chunks of bounded size, each computed when it is needed.

A body of vectors may have hundreds of megabytes; in chunks, no more of it is in memory than the
client is about to receive. Arrays are neither joined nor copied.

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
from elmore.serve.texts import TokenizedTexts

CHUNK_BYTES = 1 << 16
BATCH_BYTES = 1 << 20
"""Size of vectors in one record batch of an Arrow stream; a larger text is a batch of its own."""
DIGITS = 7  # after the point: float32 has no more for numbers near 1


def rechunk(parts: Iterable[Any]) -> Iterator[bytes]:
    """Join small parts and split large ones into chunks of CHUNK_BYTES to twice that.

    Only the last chunk may be smaller. A part is anything with a buffer of bytes.
    """
    buffer = bytearray()
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), CHUNK_BYTES):
            buffer += view[start : start + CHUNK_BYTES]
            if len(buffer) >= CHUNK_BYTES:
                yield bytes(buffer)
                buffer = bytearray()
    if buffer:
        yield bytes(buffer)


def dump_json(value: Any) -> bytes:  # noqa: ANN401 -- any JSON value
    """Return JSON; lone surrogates stay escaped."""
    return json.dumps(value, allow_nan=False).encode()


def dump_array(array: Float[np.ndarray, "..."]) -> Iterator[bytes]:
    """Yield an array as JSON lists, row by row: one call for all would block other threads."""
    if array.ndim == 1:
        yield json.dumps(np.round(array.astype(np.float64), DIGITS).tolist()).encode()
        return
    yield b"["
    for number, part in enumerate(array):
        yield b", " if number else b""
        yield from dump_array(part)
    yield b"]"


def dump_sentences(
    texts: TokenizedTexts, vectors: Sequence[Float[np.ndarray, "*L T D"]]
) -> Iterator[bytes]:
    """Yield the JSON body of /embed."""
    yield b'{"sentences": ['
    for number, (words, offsets, array) in enumerate(zip(*texts, vectors, strict=True)):
        yield b", " if number else b""
        yield b'{"tokens": %b, "offsets": %b, "vectors": ' % (dump_json(words), dump_json(offsets))
        yield from dump_array(array)
        yield b"}"
    yield b"]}"


def npy_header(shape: tuple[int, ...]) -> bytes:
    """Return the header of a .npy file of float32."""
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def array_bytes(arrays: Iterable[Float[np.ndarray, "..."]]) -> Iterator[np.ndarray]:
    """Yield the data of arrays as in a .npy file, one array after another."""
    for array in arrays:
        yield np.ascontiguousarray(array, "<f4").reshape(-1).view(np.uint8)


def arrow_stream(rows: Sequence[Row], layout: arrow.Layout) -> Iterator[Any]:
    """Yield an Arrow stream of rows, in record batches of about BATCH_BYTES."""
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
    """A file whose contents are taken out as they are written."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 -- Arrow's own buffers
        self._parts.append(data)
        return len(data)

    def take(self) -> list[Any]:
        """Return what was written since the last call."""
        parts, self._parts = self._parts, []
        return parts
