"""Approximate nearest-neighbour search with faiss, for large indices.

Occurrences are clustered into inverted lists (IVF) and stored with one byte per dimension (SQ8). A
query searches the lists of the nearest centroids; the best results are ranked again by their stored
vectors. Below `MIN_OCCURRENCES`, exact search is fast enough.
"""

import dataclasses
import logging
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Float16, Int

from elmore import atomic
from elmore.probe.neighbors import exact_search, storage
from elmore.probe.neighbors.columns import Columns
from elmore.probe.neighbors.exact_search import Nearest
from elmore.probe.neighbors.storage import Approximate, Manifest, faiss_file

MIN_OCCURRENCES = 200_000
_NPROBE = 32  # lists searched per query
_RERANK_FACTOR = 8  # candidates ranked again, as a multiple of k
_TRAIN_PER_LIST = 40  # vectors to train each centroid with
_BLOCK = 65536

_log = logging.getLogger(__name__)


def _import_faiss() -> ModuleType | None:
    try:
        import faiss
    except ImportError:
        return None
    return faiss


def num_lists(size: int) -> int:
    """Return a power of two near 2 * sqrt(size), so that searching the centroids stays cheap."""
    return 2 ** (round(math.log2(size) / 2) + 1)


def update_faiss_files(folder: Path) -> None:
    """Add missing occurrences to the faiss files of a large index, if faiss is installed."""
    columns = Columns(folder)
    manifest, faiss = columns.manifest, _import_faiss()
    if manifest.num_occurrences < MIN_OCCURRENCES:
        return
    if faiss is None:
        _log.warning("%s", _missing_faiss(folder, manifest))
        return
    for layer in manifest.layers:
        path, vectors = folder / faiss_file(layer), columns.vectors(layer)
        before = _find_entry(folder, manifest, layer)
        if before is None or before.uses < manifest.num_occurrences:
            with atomic.file(path) as new:
                faiss.write_index(_extend(faiss, path if before else None, vectors), new.name)
            entry = Approximate(layer=layer, uses=len(vectors), bytes=path.stat().st_size)
            current = storage.read_manifest(folder)  # includes a text that is being appended
            other_layers = tuple(one for one in current.approximate if one.layer != layer)
            storage.write_manifest(
                folder, dataclasses.replace(current, approximate=(*other_layers, entry))
            )
            _log.info("%s: %d occurrences in %d lists", path, len(vectors), num_lists(len(vectors)))


def needs_update(folder: Path) -> bool:
    """Return whether `update_faiss_files` would write anything."""
    manifest = storage.read_manifest(folder).finished
    if manifest.num_occurrences < MIN_OCCURRENCES or _import_faiss() is None:
        return False
    entries = [_find_entry(folder, manifest, layer) for layer in manifest.layers]
    return any(entry is None or entry.uses < manifest.num_occurrences for entry in entries)


def _extend(faiss: ModuleType, path: Path | None, vectors: Float16[np.ndarray, "N D"]) -> Any:  # noqa: ANN401 -- faiss has no types
    """Return the existing faiss index, or a new one, with all vectors added."""
    size, width = vectors.shape
    lists = num_lists(size)
    index = _read(faiss, path, width) if path else None
    if index is None or index.nlist != lists:  # its centroids were trained on a much smaller text
        metric = faiss.METRIC_INNER_PRODUCT
        index = faiss.index_factory(width, f"IVF{lists},SQ8", metric)
        rows = np.random.default_rng(0).choice(size, min(size, _TRAIN_PER_LIST * lists), False)
        index.train(vectors[np.sort(rows)].astype(np.float32))
    for begin in range(index.ntotal, size, _BLOCK):
        index.add(vectors[begin : begin + _BLOCK].astype(np.float32))
    return index


def _read(faiss: ModuleType, path: Path, width: int, flags: int = 0) -> Any:  # noqa: ANN401 -- faiss has no types
    """Read a faiss file; return None if it is damaged or has another width."""
    try:
        index = faiss.read_index(str(path), flags)
    except RuntimeError:  # faiss raises it for every kind of damage
        return None
    return index if isinstance(index, faiss.IndexIVF) and index.d == width else None


def _find_entry(folder: Path, manifest: Manifest, layer: str) -> Approximate | None:
    """Return the manifest entry of a layer's faiss file, if the file has the recorded size."""
    path = folder / faiss_file(layer)
    for entry in manifest.approximate:
        if entry.layer == layer and path.is_file() and path.stat().st_size == entry.bytes:
            return entry
    return None


def _missing_faiss(folder: Path, manifest: Manifest) -> str:
    return (
        f"{folder}: faiss is not installed, so each query is compared with all "
        f"{manifest.num_occurrences} occurrences; for faster search: pip install 'elmore[index]'"
    )


class FaissLayer:
    """The occurrences of one layer that are in faiss, memory-mapped."""

    def __init__(self, index: Any) -> None:  # noqa: ANN401 -- faiss has no types
        self._index = index
        index.nprobe = _NPROBE

    @classmethod
    def open(cls, columns: Columns, layer: str) -> "FaissLayer | None":
        """Open the faiss file of a layer; None means exact search, and a warning says why."""
        manifest = columns.manifest
        if manifest.num_occurrences < MIN_OCCURRENCES:
            return None
        faiss, entry = _import_faiss(), _find_entry(columns.folder, manifest, layer)
        if faiss is None:
            _log.warning("%s", _missing_faiss(columns.folder, manifest))
            return None
        path = columns.folder / faiss_file(layer)
        if entry is None:
            _log.warning("%s: missing or truncated; searching exactly", path)
            return None
        index = _read(faiss, path, manifest.width, faiss.IO_FLAG_MMAP)
        if index is None or index.ntotal > manifest.num_occurrences:
            _log.warning("%s: damaged; searching exactly", path)
            return None
        return cls(index)

    def search_cost(self, size: int) -> int:
        """Return the cost of a search among `size` occurrences, in exact comparisons.

        One in faiss, with numbers of one byte, counts twice: it takes 1.8 times as long on a CPU.
        """
        index = self._index
        searched = round(index.ntotal * min(1, index.nprobe / index.nlist))
        return 2 * (index.nlist + searched) + size - index.ntotal

    def search(
        self,
        vectors: Float16[np.ndarray, "N D"],
        query: Float[np.ndarray, " D"],
        k: int,
        *,
        exclude: Int[np.ndarray, " E"],
    ) -> Nearest:
        """Search like `exact_search.search`; a few of the nearest may be missed."""
        count = min(_RERANK_FACTOR * k + len(exclude), self._index.ntotal)
        _, candidates = self._index.search(query[None], count)
        added_later = np.arange(self._index.ntotal, len(vectors))  # by a process without faiss
        rows = np.union1d(candidates[0][candidates[0] >= 0], added_later)
        nearest = exact_search.search(vectors, query, k, among=rows, exclude=exclude)
        if len(nearest.rows) < k:  # the searched lists hold too few
            return exact_search.search(vectors, query, k, exclude=exclude)
        return nearest
