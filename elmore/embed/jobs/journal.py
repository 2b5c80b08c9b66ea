"""The journal of an embedding job: finished parts, each complete on disk or absent.

A part is two files: `part-00012.bin`, the concatenated vectors, and its manifest `part-00012.json`,
written last: the texts, their tokens, and checksums of both.
"""

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

from elmore import atomic, strict_json
from elmore.embed.outputs import Direction
from elmore.embed.tokenized import Text
from elmore.journal import Journal

FORMAT = 1
MAX_LINES = 4096
MAX_TOKENS = 32768
ADVICE = "free some space and continue with --resume"


@dataclass(frozen=True, kw_only=True)
class EmbedJob:
    """Everything that determines the result: the same job on the same text gives the same file."""

    model: str
    """Hash of the network and its alphabet, and of the pooling if it is a learned one."""
    layers: str
    pool: str | None
    dtype: str
    tokenized: bool
    split: bool
    initial_state: str
    precision: str
    """`fast` only where that differs from exact."""
    errors: str
    column: str
    num_layers: int
    width: int
    direction: Direction = "both"
    format: int = FORMAT


class Row(NamedTuple):
    """The result of one line of the input."""

    line: int
    text: Text
    tokens: list[str]
    vectors: Shaped[np.ndarray, "..."]
    others: Mapping[str, Any] = MappingProxyType({})
    """The other columns of a table."""


class EmbedJournal(Journal[EmbedJob]):
    """The folder of one job; one process at a time may use it."""

    FILES = re.compile(r"part-\d+\.(bin|json|json\.new)|result\.\w+")
    FOLDERS = frozenset({"shards", "model", "results", "tries"})  # of a Ray job

    def finished(self) -> Iterator[dict]:
        """Yield the manifests of finished parts up to the first damaged one; delete the rest."""
        number = num_lines = 0
        while (manifest := self._manifest(number, num_lines)) is not None:
            yield manifest
            number, num_lines = number + 1, num_lines + len(manifest["texts"])
        for path in self.own_files():  # left by a killed process
            match = re.match(r"part-(\d+)\.", path.name)
            if match and int(match[1]) >= number:
                path.unlink()

    def _manifest(self, number: int, first: int) -> dict | None:
        """Return the manifest of a part that starts at line `first`; None if it is damaged."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            manifest = strict_json.loads(self._path(number, "json").read_bytes())
            if not _is_manifest(manifest) or manifest["first"] != first:
                return None
            if manifest["content"] != text_digest(_content(manifest)):
                return None
            with self._path(number, "bin").open("rb") as file:
                size, digest = os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256")
            if digest.hexdigest() == manifest["sha256"] and size == self._num_bytes(
                manifest["tokens"]
            ):
                return manifest
        return None

    def _num_bytes(self, tokens: list[list[str]]) -> int:
        sizes = (math.prod(self._shape(len(words))) for words in tokens)
        return np.dtype(self.job.dtype).itemsize * sum(sizes)

    def _path(self, number: int, ending: str) -> Path:
        return self.folder / f"part-{number:05}.{ending}"

    def begin(self, number: int, first_line: int) -> "PartWriter":
        """Open the next part for writing."""
        return PartWriter(self._path(number, "bin"), self._path(number, "json"), first_line)

    def rows(self) -> Iterator[Row]:
        """Yield all results in order, with one part at a time in memory."""
        number = 0
        while self._path(number, "json").exists():
            manifest = strict_json.loads(self._path(number, "json").read_bytes())
            data = np.fromfile(self._path(number, "bin"), dtype=self.job.dtype)
            begin = 0
            others = manifest.get("others") or [{}] * len(manifest["texts"])
            for i, (text, tokens) in enumerate(
                zip(manifest["texts"], manifest["tokens"], strict=True)
            ):
                shape = self._shape(len(tokens))
                size = int(np.prod(shape))
                vectors = data[begin : begin + size].reshape(shape)
                yield Row(manifest["first"] + i, text, tokens, vectors, others[i])
                begin += size
            number += 1

    def others(self) -> Iterator[Mapping[str, Any]]:
        """Yield the other columns of all rows, without their vectors."""
        number = 0
        while self._path(number, "json").exists():
            yield from strict_json.loads(self._path(number, "json").read_bytes()).get("others", [])
            number += 1

    def _shape(self, num_tokens: int) -> tuple[int, ...]:
        if self.job.pool:
            return (self.job.width,)
        one = (num_tokens, self.job.width)
        return (self.job.num_layers, *one) if self.job.layers == "all" else one

    def num_bytes(self) -> int:
        """Return the size of all vectors."""
        return sum(path.stat().st_size for path in self.folder.glob("part-*.bin"))

    @property
    def is_empty(self) -> bool:
        """Whether no part is finished."""
        return not self._path(0, "json").exists()


class PartWriter:
    """Writes one part, which does not exist for a reader until it is closed."""

    def __init__(self, vectors: Path, manifest: Path, first_line: int) -> None:
        self._vectors_path, self._manifest_path = vectors, manifest
        self._file: IO[bytes] = vectors.open("wb")
        self._digest = hashlib.sha256()
        self._first = first_line
        self._texts: list[Text] = []
        self._tokens: list[list[str]] = []
        self._others: list[Mapping[str, Any]] = []
        self._num_tokens = 0

    def add(
        self,
        text: Text,
        tokens: list[str],
        vectors: Shaped[np.ndarray, "..."],
        others: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Append one line's result."""
        data = np.ascontiguousarray(vectors).tobytes()
        with atomic.explain_write_errors(self._vectors_path, ADVICE):
            self._file.write(data)
        self._digest.update(data)
        self._texts.append(text)
        self._tokens.append(tokens)
        self._others.append(dict(others))
        self._num_tokens += len(tokens)

    @property
    def is_full(self) -> bool:
        """Whether to close it; depends on the text alone, so that all runs have the same parts."""
        return len(self._texts) >= MAX_LINES or self._num_tokens >= MAX_TOKENS

    def close(self) -> None:
        """Finish the part by writing its manifest."""
        content: dict[str, Any] = {"tokens": self._tokens, "texts": self._texts}
        if any(self._others):
            content["others"] = self._others
        manifest = {
            "first": self._first,
            "sha256": self._digest.hexdigest(),
            "input": text_digest(self._texts),
            "content": text_digest(_content(content)),
            **content,
        }
        with atomic.explain_write_errors(self._vectors_path, ADVICE):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            atomic.write(self._manifest_path, json.dumps(manifest).encode())

    def abandon(self) -> None:
        """Close the file without a manifest; the next run deletes it."""
        with contextlib.suppress(OSError):  # a full disk, of which the first error tells
            self._file.close()


def _content(manifest: Mapping[str, Any]) -> list[Any]:
    """Return what the checksum of a manifest covers."""
    return [manifest[key] for key in ("texts", "tokens", "others") if key in manifest]


def _is_manifest(manifest: object) -> bool:
    """Return whether a JSON value has the structure that `PartWriter.close` writes."""
    if not isinstance(manifest, dict) or type(manifest.get("first")) is not int:
        return False
    texts, tokens = manifest.get("texts"), manifest.get("tokens")
    others = manifest.get("others")
    return (
        isinstance(texts, list)
        and isinstance(tokens, list)
        and len(texts) == len(tokens)
        and ("others" not in manifest or _are_rows(others, len(texts)))
        and all(isinstance(text, str) or _is_tokens(text) for text in texts)
        and all(map(_is_tokens, tokens))
        and all(isinstance(manifest.get(key), str) for key in ("sha256", "input", "content"))
    )


def _are_rows(value: object, count: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == count
        and all(isinstance(columns, dict) for columns in value)
    )


def _is_tokens(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(token, str) for token in value)


def text_digest(texts: list) -> str:
    """Return a hash of texts."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
