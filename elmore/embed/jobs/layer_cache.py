"""A cache on disk of the layers of a frozen model, computed once for a text.

A file holds all layers of each distinct sentence in float16, in the format of .npy, followed by the
sha256 of it. Its name is a hash of model and text, and a format number. It is written under a
temporary name and renamed, so it is complete or absent; a damaged file is computed again.

Shapes: L layers (the token layer is one of them), S tokens in all, D width.
"""

import hashlib
import io
import json
import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float16

from elmore import atomic, cache, lock
from elmore.embed.embedder import Embedder
from elmore.errors import DataError
from elmore.weights.digest import model_digest

FORMAT = 1
_CHUNK = 1 << 20

_log = logging.getLogger(__name__)


class CachedLayers:
    """The layers of a set of sentences, mapped from disk."""

    def __init__(
        self,
        sentences: Sequence[tuple[str, ...]],
        states: Float16[np.ndarray, "S L D"],
        seconds: float | None = None,
    ) -> None:
        """Index the layers of all tokens of distinct sentences.

        `seconds` is how long it took to compute them, or None if they were in the cache.
        """
        ends = np.cumsum([len(sentence) for sentence in sentences]).tolist()
        self._spans = {
            sentence: slice(end - len(sentence), end)
            for sentence, end in zip(sentences, ends, strict=True)
        }
        self._states = states.view(np.ndarray)  # a slice of a memmap takes seven times as long
        self.seconds = seconds

    @property
    def num_bytes(self) -> int:
        """Size of the layers."""
        return self._states.nbytes

    def __len__(self) -> int:
        return len(self._spans)

    def of(self, sentences: Sequence[Sequence[str]]) -> Float16[np.ndarray, "L S D"]:
        """Return the layers of sentences, concatenated."""
        _, num_layers, width = self._states.shape
        layers = np.empty((num_layers, sum(map(len, sentences)), width), np.float16)
        done = 0
        for sentence in sentences:
            states = self._states[self._spans[tuple(sentence)]]
            layers[:, done : done + len(states)] = states.transpose(1, 0, 2)
            done += len(states)
        return layers


def load_or_compute(
    embedder: Embedder, sentences: Iterable[Sequence[str]], folder: Path | None = None
) -> CachedLayers:
    """Return the layers of sentences from the cache, or compute and store them.

    `folder` is by default `layers` in the user's cache. If several processes need the same file,
    one computes it while the others wait.
    """
    distinct, path, shape = _locate(embedder, sentences, folder)
    seconds = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _is_intact(path, shape):  # outside the lock: many can check one file at a time
            with lock.acquire(path.with_name(f"{path.name}.lock"), wait=True):
                if not _is_intact(path, shape):
                    start_time = time.perf_counter()
                    _build(embedder, distinct, path, shape)
                    seconds = time.perf_counter() - start_time
    except OSError as error:
        raise DataError(
            f"{path}: the layers of the text could not be stored ({error.strerror or error}); "
            "set ELMORE_CACHE to a folder with free space"
        ) from error
    return CachedLayers(distinct, _map(path, shape), seconds)


def load(
    embedder: Embedder, sentences: Iterable[Sequence[str]], folder: Path | None = None
) -> CachedLayers | None:
    """Return the layers of sentences from the cache, or None if they are not in it."""
    distinct, path, shape = _locate(embedder, sentences, folder)
    return CachedLayers(distinct, _map(path, shape)) if _is_intact(path, shape) else None


def compute(embedder: Embedder, sentences: Iterable[Sequence[str]]) -> CachedLayers:
    """Return the layers of sentences, computed in memory, with the same bits."""
    distinct = sorted({tuple(sentence) for sentence in sentences})
    embedded = embedder.stream(distinct, layers="all", dtype="float16")
    states = [sentence.vectors.transpose(1, 0, 2) for sentence in embedded]
    empty = np.zeros((0, embedder.num_layers, embedder.width), np.float16)
    return CachedLayers(distinct, np.concatenate([empty, *states]))


def cache_key(embedder: Embedder, distinct: Iterable[Sequence[str]]) -> str:
    """Return the name under which the layers of distinct sentences are cached."""
    text = hashlib.sha256()
    for sentence in distinct:
        text.update(json.dumps(sentence).encode() + b"\n")
    model = hashlib.sha256(f"{model_digest(embedder.bundle)} {embedder.initial_state}".encode())
    if embedder.is_fast:
        model.update(b" fast, hidden values in 16 bits")  # earlier caches had 8
    if embedder.initial_state == "warm" and embedder.bundle.warm_state is not None:
        for part in embedder.bundle.warm_state:
            model.update(part.cpu().contiguous().numpy().data)
    return f"{model.hexdigest()[:32]}-{text.hexdigest()[:32]}"


def _locate(
    embedder: Embedder, sentences: Iterable[Sequence[str]], folder: Path | None
) -> tuple[list[tuple[str, ...]], Path, tuple[int, int, int]]:
    """Return the distinct sentences, the path of their layers, and the shape of those."""
    distinct = sorted({tuple(sentence) for sentence in sentences})
    folder = cache.cache_dir() / "layers" if folder is None else folder
    shape = (sum(map(len, distinct)), embedder.num_layers, embedder.width)
    key = cache_key(embedder, distinct)
    path, unnumbered = folder / f"{key}.{FORMAT}.npy", folder / f"{key}.npy"
    # The first files of format 1 had no number in their name.
    return distinct, unnumbered if FORMAT == 1 and unnumbered.exists() else path, shape


def _build(
    embedder: Embedder, distinct: Sequence[Sequence[str]], path: Path, shape: tuple[int, int, int]
) -> None:
    if path.exists():
        _log.warning("%s is damaged and is computed again", path)
    path.with_suffix(".part").unlink(missing_ok=True)  # of a killed build of elmore 0.1
    with atomic.file(path) as file:
        _write(embedder, distinct, file, shape)
    _log.info("stored the layers of %d tokens in %s", shape[0], path)


def _write(
    embedder: Embedder,
    distinct: Sequence[Sequence[str]],
    file: BinaryIO,
    shape: tuple[int, int, int],
) -> None:
    digest = hashlib.sha256()

    def write(data: bytes | memoryview) -> None:
        digest.update(data)
        file.write(data)

    write(_header(shape))
    for sentence in embedder.stream(distinct, layers="all", dtype="float16"):
        write(np.ascontiguousarray(sentence.vectors.transpose(1, 0, 2)).data)
    file.write(digest.digest())


def _header(shape: tuple[int, int, int]) -> bytes:
    buffer = io.BytesIO()
    header = {"descr": "<f2", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def _is_intact(path: Path, shape: tuple[int, int, int]) -> bool:
    """Return whether a file exists, has this shape, and matches its checksum."""
    if not path.is_file():
        return False
    size = len(_header(shape)) + 2 * int(np.prod(shape))
    digest, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while left and (chunk := file.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
        return not left and file.read() == digest.digest()


def _map(path: Path, shape: tuple[int, int, int]) -> Float16[np.ndarray, "S L D"]:
    if not shape[0]:  # an empty file cannot be mapped
        return np.zeros(shape, np.float16)
    return np.memmap(path, "<f2", mode="r", offset=len(_header(shape)), shape=shape)
