"""The layers of a frozen model, computed once for a text and then read from the disk.

A file holds all layers of each distinct sentence in float16, as .npy writes an array, and after it
the sha256 of all that. Its name says which model, which text and which format; it is written aside
and renamed, so it is whole or absent, and what a disk has spoiled since is computed anew.

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
from elmore.embed.jobs.job import model_digest
from elmore.errors import DataError

FORMAT = 1
_CHUNK = 1 << 20

_log = logging.getLogger(__name__)


class CachedLayers:
    """The layers of some sentences, on the disk."""

    def __init__(
        self,
        sentences: Sequence[tuple[str, ...]],
        states: Float16[np.ndarray, "S L D"],
        seconds: float | None = None,
    ) -> None:
        """Take distinct sentences and their tokens' layers, one sentence after another.

        `seconds` is what it took to compute them; None where they were found.
        """
        ends = np.cumsum([len(sentence) for sentence in sentences]).tolist()
        self._places = {
            sentence: slice(end - len(sentence), end)
            for sentence, end in zip(sentences, ends, strict=True)
        }
        self._states = states
        self.seconds = seconds

    @property
    def num_bytes(self) -> int:
        """How much room they take."""
        return self._states.nbytes

    def __len__(self) -> int:
        return len(self._places)

    def of(self, sentences: Sequence[Sequence[str]]) -> Float16[np.ndarray, "L S D"]:
        """Give the layers of sentences, one after another."""
        _, num_layers, width = self._states.shape
        layers = np.empty((num_layers, sum(map(len, sentences)), width), np.float16)
        done = 0
        for sentence in sentences:
            states = self._states[self._places[tuple(sentence)]]
            layers[:, done : done + len(states)] = states.transpose(1, 0, 2)
            done += len(states)
        return layers


def load_or_compute(
    embedder: Embedder, sentences: Iterable[Sequence[str]], folder: Path | None = None
) -> CachedLayers:
    """Give the layers of sentences: from the disk, or computed now and kept there.

    `folder` is `layers` in the user's cache unless another is named. Of several processes that ask
    for the same, one computes while the others wait.
    """
    distinct, path, shape = _place(embedder, sentences, folder)
    seconds = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _is_whole(path, shape):  # outside the lock: many can check one file at a time
            with lock.acquire(path.with_name(f"{path.name}.lock"), wait=True):
                if not _is_whole(path, shape):
                    begun = time.perf_counter()
                    _build(embedder, distinct, path, shape)
                    seconds = time.perf_counter() - begun
    except OSError as error:
        raise DataError(
            f"{path}: the layers of the text could not be kept there ({error.strerror or error}); "
            "set ELMORE_CACHE to a folder with room"
        ) from error
    return CachedLayers(distinct, _mapped(path, shape), seconds)


def load(
    embedder: Embedder, sentences: Iterable[Sequence[str]], folder: Path | None = None
) -> CachedLayers | None:
    """Give the layers of sentences where they are on the disk, and None where they are not."""
    distinct, path, shape = _place(embedder, sentences, folder)
    return CachedLayers(distinct, _mapped(path, shape)) if _is_whole(path, shape) else None


def compute(embedder: Embedder, sentences: Iterable[Sequence[str]]) -> CachedLayers:
    """Compute the layers of sentences that fit in memory, to the same bits."""
    distinct = sorted({tuple(sentence) for sentence in sentences})
    embedded = embedder.stream(distinct, layers="all", dtype="float16")
    states = [sentence.vectors.transpose(1, 0, 2) for sentence in embedded]
    empty = np.zeros((0, embedder.num_layers, embedder.width), np.float16)
    return CachedLayers(distinct, np.concatenate([empty, *states]))


def cache_key(embedder: Embedder, distinct: Iterable[Sequence[str]]) -> str:
    """Name the layers that a model gives to distinct sentences."""
    text = hashlib.sha256()
    for sentence in distinct:
        text.update(json.dumps(sentence).encode() + b"\n")
    model = hashlib.sha256(f"{model_digest(embedder.bundle)} {embedder.initial_state}".encode())
    if embedder.is_fast:
        model.update(b" fast")
    if embedder.initial_state == "warm" and embedder.bundle.warm_state is not None:
        for part in embedder.bundle.warm_state:
            model.update(part.cpu().contiguous().numpy().data)
    return f"{model.hexdigest()[:32]}-{text.hexdigest()[:32]}"


def _place(
    embedder: Embedder, sentences: Iterable[Sequence[str]], folder: Path | None
) -> tuple[list[tuple[str, ...]], Path, tuple[int, int, int]]:
    """Give the distinct sentences, where their layers belong, and their shape."""
    distinct = sorted({tuple(sentence) for sentence in sentences})
    folder = cache.folder() / "layers" if folder is None else folder
    shape = (sum(map(len, distinct)), embedder.num_layers, embedder.width)
    key = cache_key(embedder, distinct)
    path, unnumbered = folder / f"{key}.{FORMAT}.npy", folder / f"{key}.npy"
    # The first files of format 1 had no number in their name.
    return distinct, unnumbered if FORMAT == 1 and unnumbered.exists() else path, shape


def _build(
    embedder: Embedder, distinct: Sequence[Sequence[str]], path: Path, shape: tuple[int, int, int]
) -> None:
    if path.exists():
        _log.warning("%s is damaged, and is computed anew", path)
    path.with_suffix(".part").unlink(missing_ok=True)  # of a killed build of elmore 0.1
    with atomic.file(path) as file:
        _write(embedder, distinct, file, shape)
    _log.info("kept the layers of %d tokens in %s", shape[0], path)


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
    header = io.BytesIO()
    described = {"descr": "<f2", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


def _is_whole(path: Path, shape: tuple[int, int, int]) -> bool:
    """Tell whether a file is there, of that shape, and as it was written."""
    if not path.is_file():
        return False
    size = len(_header(shape)) + 2 * int(np.prod(shape))
    digest, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while left and (chunk := file.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
        return not left and file.read() == digest.digest()


def _mapped(path: Path, shape: tuple[int, int, int]) -> Float16[np.ndarray, "S L D"]:
    if not shape[0]:  # nothing can be mapped of an empty text
        return np.zeros(shape, np.float16)
    return np.memmap(path, "<f2", mode="r", offset=len(_header(shape)), shape=shape)
