"""Write the files of a corpus in pieces, computing their checksums on the way."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Int64, Shaped

from elmore import strict_json
from elmore.corpus import shards
from elmore.text.vocabulary import Vocabulary

_CHUNK = 1 << 18


class CorpusWriter:
    """Writes a corpus folder; `write_index` completes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, dict[str, int | str]] = {}
        self._splits: dict[str, list[dict[str, Any]]] = {"train": [], "valid": []}

    def write_types(self, types: Iterable[str], counts: Int64[np.ndarray, " types"]) -> list[int]:
        """Write the types in order and their counts; return the byte counts."""
        words = counts.copy()
        words[: len(shards.MARKS)] = 0  # not words of the text
        lengths = np.zeros(len(counts) + 1, np.int64)
        byte_counts = np.zeros(257, np.int64)
        byte_counts[256] = words.sum()
        rest, first = iter(types), 0
        with self._open(shards.TYPES) as file:
            while some := [word.encode("utf-8") for word in islice(rest, _CHUNK)]:
                data, here = b"".join(some), slice(first, first + len(some))
                sizes = np.fromiter(map(len, some), np.int64, len(some))
                occurrences = np.repeat(words[here], sizes).astype(float)  # exact below 2**53
                letters = np.frombuffer(data, np.uint8)
                byte_counts[:256] += np.bincount(letters, occurrences, 256).astype(np.int64)
                lengths[1:][here] = sizes
                file.write(data)
                first += len(some)
        self._array(shards.OFFSETS, np.cumsum(lengths))
        self._array(shards.COUNTS, counts)
        return byte_counts.tolist()

    def write_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Write the words of the softmax."""
        path = self._folder / shards.VOCABULARY
        vocabulary.write(path)
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        self._files[path.name] = {"bytes": len(data), "sha256": digest}

    def write_shard(
        self, split: str, pieces: Iterable[Int64[np.ndarray, " N"]], length: int
    ) -> None:
        """Write the next shard of a split, which has `length` tokens."""
        stem = f"{split}-{len(self._splits[split]):05}"
        starts, begin = [], 0
        with self._npy(f"{stem}.tokens.npy", np.uint32, length) as file:
            for piece in pieces:
                file.write(piece.astype("<u4").tobytes())
                starts.append(begin + np.flatnonzero(piece == shards.BOUNDARY))
                begin += len(piece)
        assert begin == length
        sentences = np.concatenate(starts)
        self._array(f"{stem}.sentences.npy", sentences)
        self._splits[split].append(
            {
                "tokens": f"{stem}.tokens.npy",
                "sentences": f"{stem}.sentences.npy",
                "num_words": length - len(sentences),
                "num_sentences": len(sentences),
                "num_tokens": length,
            }
        )

    def write_index(self, *, unknown: dict[str, int], **facts: object) -> None:
        """Write the index; `unknown` counts the words of each split outside the vocabulary."""
        names = ("num_words", "num_sentences", "num_tokens")
        splits = {
            split: {name: sum(shard[name] for shard in parts) for name in names}
            | {"num_unknown": unknown[split], "shards": parts}
            for split, parts in self._splits.items()
        }
        index = {"format": shards.FORMAT, **facts, "splits": splits, "files": self._files}
        index["sha256"] = shards.index_sha256(index)
        (self._folder / shards.INDEX).write_bytes(strict_json.encode(index, indent=1))

    def _array(self, name: str, array: Shaped[np.ndarray, " N"]) -> None:
        with self._npy(name, array.dtype, len(array)) as file:
            file.write(array.tobytes())

    @contextmanager
    def _npy(self, name: str, dtype: np.typing.DTypeLike, length: int) -> Iterator["_HashingFile"]:
        """Write the header of a .npy file, and return the file for its data."""
        with self._open(name) as file:
            kind = np.lib.format.dtype_to_descr(np.dtype(dtype).newbyteorder("<"))
            header = {"descr": kind, "fortran_order": False, "shape": (length,)}
            np.lib.format.write_array_header_1_0(file, header)
            yield file

    @contextmanager
    def _open(self, name: str) -> Iterator["_HashingFile"]:
        with (self._folder / name).open("wb") as raw:
            file = _HashingFile(raw)
            yield file
        self._files[name] = {"bytes": file.size, "sha256": file.digest.hexdigest()}


class _HashingFile:
    """A file that tracks its size and checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest, self.size = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self.digest.update(data)
        self.size += len(data)
