"""Pack a prepared corpus into small files, for a machine that is far away, and unpack them.

    python benchmarks/pack_corpus.py pack SHARDS PARTS
    python benchmarks/pack_corpus.py unpack PARTS SHARDS

PARTS are files of some 12 MB: the numbers of the words, compressed by LZMA in four-byte columns,
and the other files of the corpus. They take about as many bytes as the compressed text, and
unpacking takes seconds where preparing takes minutes. `unpack` checks the sha256 of every file.
"""

import argparse
import gzip
import lzma
import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt32

from elmore import strict_json
from elmore.corpus import shards

WORDS_PER_PART = 9_000_000
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 24, "lc": 0, "lp": 2, "pb": 2}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["pack", "unpack"])
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path)
    args = parser.parse_args()
    index = args.source / (shards.INDEX + (".gz" if args.action == "unpack" else ""))
    if not index.is_file():
        parser.error(f"{index} is not there; name what elmore prepare, or `pack`, has written")
    if args.destination.exists():
        parser.error(f"{args.destination} is there already; name another folder")
    args.destination.mkdir(parents=True)
    (pack if args.action == "pack" else unpack)(args.source, args.destination)


def pack(corpus: Path, parts: Path) -> None:
    """Write the parts of a corpus."""
    streams, others = list_files(corpus / shards.INDEX)
    for name in others:
        (parts / f"{name}.gz").write_bytes(gzip.compress((corpus / name).read_bytes(), 6))
    jobs = [
        (corpus / name, parts / f"{name}.{number:03}", number)
        for name in streams
        for number in range(-(-len(np.load(corpus / name, mmap_mode="r")) // WORDS_PER_PART))
    ]
    with multiprocessing.Pool() as pool:
        pool.starmap(pack_part, jobs, chunksize=1)


def pack_part(stream: Path, part: Path, number: int) -> None:
    """Compress one part of a stream."""
    begin = number * WORDS_PER_PART
    types = np.load(stream, mmap_mode="r")[begin : begin + WORDS_PER_PART]
    part.write_bytes(lzma.compress(types.tobytes(), lzma.FORMAT_RAW, filters=FILTERS))


def unpack(parts: Path, corpus: Path) -> None:
    """Write the corpus of parts."""
    for path in parts.glob("*.gz"):
        (corpus / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    streams, _ = list_files(corpus / shards.INDEX)
    names = [sorted(parts.glob(f"{name}.[0-9][0-9][0-9]")) for name in streams]
    with multiprocessing.Pool() as pool:
        for name, paths in zip(streams, names, strict=True):
            save_stream(corpus / name, pool.map(read_part, paths, chunksize=1))
    shards.open_corpus(corpus).verify()


def save_stream(path: Path, parts: Sequence[UInt32[np.ndarray, " n"]]) -> None:
    """Write a stream, and the positions of its sentence starts."""
    types = np.concatenate(parts)
    np.save(path, types)
    starts = np.flatnonzero(types == shards.BOUNDARY).astype("<i8")
    np.save(path.with_name(path.name.replace(".tokens.", ".sentences.")), starts)


def read_part(part: Path) -> UInt32[np.ndarray, " n"]:
    """Return the types of a part."""
    data = lzma.decompress(part.read_bytes(), lzma.FORMAT_RAW, filters=FILTERS)
    return np.frombuffer(data, "<u4")


def list_files(index: Path) -> tuple[list[str], list[str]]:
    """Return the streams of a corpus, and the files that are kept as they are."""
    names = strict_json.loads(index.read_text("utf-8"))["files"]
    streams = [name for name in names if name.endswith(".tokens.npy")]
    derived = [name for name in names if name.endswith(".sentences.npy")]
    return streams, [shards.INDEX, *(n for n in names if n not in {*streams, *derived})]


if __name__ == "__main__":
    main()
