"""The nearest of very many vectors, nearly always: faiss, where an index is large.

Uses are sorted into lists around some centres (IVF), a byte for each number (SQ8). A query looks
through the lists of the nearest centres; the best of what is found there are compared again by
their vectors as they are stored. Below `MANY` uses looking at all of them is quick enough.
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
from elmore.probe import use_search, use_store
from elmore.probe.use_columns import Columns
from elmore.probe.use_search import Nearest
from elmore.probe.use_store import Approximate, Manifest, faiss_file

MANY = 200_000
_PROBES = 32  # lists that a query looks through
_AGAIN = 8  # times as many as asked for are compared exactly
_SAMPLE = 40  # uses to find each centre by
_BLOCK = 65536

_log = logging.getLogger(__name__)


def _faiss() -> ModuleType | None:
    try:
        import faiss
    except ImportError:
        return None
    return faiss


def num_lists(num_uses: int) -> int:
    """Give a power of two near twice the root: centres then cost less than the uses around them."""
    return 2 ** (round(math.log2(num_uses) / 2) + 1)


def extend(folder: Path) -> None:
    """Bring the faiss files of an index up to its uses, where there are many and faiss is here."""
    columns = Columns(folder)
    manifest, faiss = columns.manifest, _faiss()
    if manifest.num_uses < MANY:
        return
    if faiss is None:
        _log.warning("%s", _absent(folder, manifest))
        return
    for layer in manifest.layers:
        path, vectors = folder / faiss_file(layer), columns.vectors(layer)
        before = _entry(folder, manifest, layer)
        if before is None or before.uses < manifest.num_uses:
            with atomic.file(path) as new:
                faiss.write_index(_grown(faiss, path if before else None, vectors), new.name)
            entry = Approximate(layer=layer, uses=len(vectors), bytes=path.stat().st_size)
            found = use_store.read(folder)  # with what is being added, should that be
            others = tuple(one for one in found.approximate if one.layer != layer)
            use_store.write(folder, dataclasses.replace(found, approximate=(*others, entry)))
            _log.info("%s: %d uses in %d lists", path, len(vectors), num_lists(len(vectors)))


def is_behind(folder: Path) -> bool:
    """Tell whether `extend` would write anything."""
    manifest = use_store.read(folder).done
    if manifest.num_uses < MANY or _faiss() is None:
        return False
    entries = [_entry(folder, manifest, layer) for layer in manifest.layers]
    return any(entry is None or entry.uses < manifest.num_uses for entry in entries)


def _grown(faiss: ModuleType, path: Path | None, vectors: Float16[np.ndarray, "N D"]) -> Any:  # noqa: ANN401 -- faiss has no types
    """Give the index that is there, or a new one, with all uses in it."""
    num_uses, width = vectors.shape
    lists = num_lists(num_uses)
    index = _read(faiss, path, width) if path else None
    if index is None or index.nlist != lists:  # the centres are of a text four times smaller
        metric = faiss.METRIC_INNER_PRODUCT
        index = faiss.index_factory(width, f"IVF{lists},SQ8", metric)
        rows = np.random.default_rng(0).choice(num_uses, min(num_uses, _SAMPLE * lists), False)
        index.train(vectors[np.sort(rows)].astype(np.float32))
    for begin in range(index.ntotal, num_uses, _BLOCK):
        index.add(vectors[begin : begin + _BLOCK].astype(np.float32))
    return index


def _read(faiss: ModuleType, path: Path, width: int, flags: int = 0) -> Any:  # noqa: ANN401 -- faiss has no types
    """Read the file of a layer; None where it is not one, or not of this width."""
    try:
        index = faiss.read_index(str(path), flags)
    except RuntimeError:  # what faiss raises for anything
        return None
    return index if isinstance(index, faiss.IndexIVF) and index.d == width else None


def _entry(folder: Path, manifest: Manifest, layer: str) -> Approximate | None:
    """Give what is known of a layer's faiss file, where it is as it was written."""
    path = folder / faiss_file(layer)
    for entry in manifest.approximate:
        if entry.layer == layer and path.is_file() and path.stat().st_size == entry.bytes:
            return entry
    return None


def _absent(folder: Path, manifest: Manifest) -> str:
    return (
        f"{folder}: all {manifest.num_uses} uses are looked at for each query, since faiss is not "
        "installed; it is quicker with faiss: pip install 'elmore[index]'"
    )


class ManyUses:
    """The uses of a layer that are in faiss, memory-mapped."""

    def __init__(self, index: Any) -> None:  # noqa: ANN401 -- faiss has no types
        self._index = index
        index.nprobe = _PROBES

    @classmethod
    def open(cls, columns: Columns, layer: str) -> "ManyUses | None":
        """Give them, or None where all uses are to be looked at; one line says why if many."""
        manifest = columns.manifest
        if manifest.num_uses < MANY:
            return None
        faiss, entry = _faiss(), _entry(columns.folder, manifest, layer)
        if faiss is None:
            _log.warning("%s", _absent(columns.folder, manifest))
            return None
        path = columns.folder / faiss_file(layer)
        if entry is None:
            _log.warning("%s: absent or cut short, so all uses are looked at", path)
            return None
        index = _read(faiss, path, manifest.width, faiss.IO_FLAG_MMAP)
        if index is None or index.ntotal > manifest.num_uses:
            _log.warning("%s: damaged, so all uses are looked at", path)
            return None
        return cls(index)

    def search(
        self,
        vectors: Float16[np.ndarray, "N D"],
        query: Float[np.ndarray, " D"],
        k: int,
        *,
        without: Int[np.ndarray, " E"],
    ) -> Nearest:
        """Give the nearest as `use_search.search` does, but for a few that are missed."""
        _, found = self._index.search(query[None], _AGAIN * k + len(without))
        later = np.arange(self._index.ntotal, len(vectors))  # added without faiss
        rows = np.union1d(found[0][found[0] >= 0], later)
        nearest = use_search.search(vectors, query, k, among=rows, without=without)
        if len(nearest.rows) < k:  # the lists that were looked through hold no more
            return use_search.search(vectors, query, k, without=without)
        return nearest
