"""Write documents to `train-NN.txt.xz` files with the same mix of sources, and read their lines."""

import heapq
import lzma
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Document(NamedTuple):
    """A document of the corpus: its paragraphs in lines."""

    source: str
    num_words: int
    text: bytes


class Shard(NamedTuple):
    """A file to be written."""

    path: Path
    documents: list[Document]
    preset: int


def deal(documents: list[Document], num_shards: int, seed: int) -> list[list[Document]]:
    """Return the documents in shards, each source in equal parts by words, shuffled by the seed."""
    order = random.Random(seed)
    shards: list[list[Document]] = [[] for _ in range(num_shards)]
    for source in dict.fromkeys(document.source for document in documents):
        mine = [document for document in documents if document.source == source]
        order.shuffle(mine)
        mine.sort(
            key=lambda document: -document.num_words
        )  # the long ones first: the parts come out equal
        emptiest = [(0, number) for number in range(num_shards)]
        for document in mine:
            filled, number = heapq.heappop(emptiest)
            shards[number].append(document)
            heapq.heappush(emptiest, (filled + document.num_words, number))
    for shard in shards:
        order.shuffle(shard)
    return shards


def write_shard(shard: Shard) -> tuple[str, int, int]:
    """Write a file under its name only when it is whole; return its name, words and bytes."""
    partial = shard.path.with_name(f"{shard.path.name}.partial")
    with lzma.open(partial, "wb", preset=shard.preset) as file:
        file.write(b"\n".join(document.text for document in shard.documents))
    partial.rename(shard.path)
    words = sum(document.num_words for document in shard.documents)
    return shard.path.name, words, shard.path.stat().st_size


def read_lines(path: Path, batch: int = 20_000) -> Iterator[list[str]]:
    """Yield the lines of a text, plain or xz, that are not blank, some at a time."""
    lines = []
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
        for line in file:
            if line.strip():
                lines.append(line.strip())
            if len(lines) == batch:
                yield lines
                lines = []
    yield lines
