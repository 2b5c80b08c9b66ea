"""Build an occurrence index, or add a text to one, in parts that are complete on disk.

`storage.py` describes the folder, and why a killed process loses one part at most.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import Float

from elmore import atomic, lock
from elmore.embed.embedder import Embedder
from elmore.embed.outputs import parse_layers
from elmore.errors import DataError
from elmore.probe.cosine import normalize
from elmore.probe.neighbors import faiss_search, storage
from elmore.probe.neighbors.source_text import (
    TextOptions,
    default_folder,
    identify_text,
    split_lines,
)
from elmore.probe.neighbors.storage import (
    MANIFEST,
    SENTENCES,
    TYPES,
    WORDS,
    ColumnSlice,
    Manifest,
    Part,
    Text,
    layer_file,
)
from elmore.text.files import Lines

PART_SIZE = 32768
"""Occurrences after which a part is closed: the most that a killed process loses."""

Progress = Callable[[float | None, int, int], None]
"""Called with the fraction of the text that is done, and the sentences and occurrences stored."""

_LOCK = f"{MANIFEST}.lock"
_ADVICE = "free some space and run the same command to resume"
_log = logging.getLogger(__name__)


def build_index(
    folder: Path | None,
    embedder: Embedder,
    files: Sequence[str],
    *,
    layers: Sequence[str] | None = None,
    options: TextOptions,
    append: bool = False,
    progress: Progress = lambda fraction, sentences, occurrences: None,
) -> Path:
    """Build the index of a text, resume an interrupted build, or append a text.

    What is stored already is not embedded again. `layers` defaults to those of an existing index,
    else to the whitening of the model or its top layer. Returns the folder of the index.
    """
    text = identify_text(files, options, embedder)
    folder = folder or default_folder(embedder, text, layers)
    _check_folder(folder)
    if _is_finished(folder, embedder, text, layers) and not faiss_search.needs_update(folder):
        return folder  # without taking the lock: a reader never has to wait
    with lock.acquire(folder / _LOCK):
        manifest = _manifest_with(text, folder, embedder, layers, append=append)
        if text.digest not in {one.digest for one in manifest.texts if one.whole}:
            lines = Lines(files, errors=options.errors, column=options.column)
            sentences = split_lines(lines, options, embedder)
            with atomic.explain_write_errors(folder, _ADVICE):
                writer = _Writer(folder, manifest, storage.current_precision(embedder))
            with contextlib.closing(writer):
                _fill(
                    writer,
                    embedder,
                    sentences,
                    lambda line, *done: progress(lines.fraction_after(line), *done),
                )
        faiss_search.update_faiss_files(folder)
    return folder


def _check_folder(folder: Path) -> None:
    """Raise an error if the folder holds files that are not ours."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} exists and is not a folder; pass another name")
    if folder.is_dir() and not (folder / MANIFEST).exists():
        ours = {_LOCK, f"{MANIFEST}.new"}
        names = sorted(path.name for path in folder.iterdir())
        foreign = [name for name in names if name not in ours and not atomic.is_temporary(name)]
        if foreign:
            raise DataError(f"{folder} holds {foreign[0]!r} and is not an index; pass another name")


def _is_finished(
    folder: Path, embedder: Embedder, text: Text, layers: Sequence[str] | None
) -> bool:
    """Return whether the folder is an index that holds all of a text."""
    if not (folder / MANIFEST).exists():
        return False
    texts = storage.read_manifest(folder).texts
    if text.digest not in {one.digest for one in texts if one.whole}:
        return False
    _manifest_with(text, folder, embedder, layers, append=False)  # checks the model and the layers
    return True


def _manifest_with(
    text: Text, folder: Path, embedder: Embedder, layers: Sequence[str] | None, *, append: bool
) -> Manifest:
    """Return the manifest with the text in it, new, interrupted or finished."""
    if not (folder / MANIFEST).exists():
        new = storage.new_manifest(embedder, layers)
        return dataclasses.replace(new, texts=(text,))
    manifest = storage.read_manifest(folder)
    storage.check_same_model(folder, manifest, embedder)
    layer_names = storage.resolve_layers(layers or manifest.layers, embedder.num_layers)
    if not {*layer_names} <= {*manifest.layers}:
        raise DataError(
            f"{folder}: stores layers {', '.join(manifest.layers)}, asked for "
            f"{', '.join(layer_names)}; pass another folder for those"
        )
    manifest = dataclasses.replace(  # a text without a single part leaves no trace
        manifest, texts=tuple(one for one in manifest.texts if one.whole or one.parts)
    )
    if text.digest in {one.digest for one in manifest.texts}:
        return manifest
    for one in manifest.texts:
        if not one.whole:
            raise DataError(
                f"{folder}: the build of {' '.join(one.files)} did not finish; run the same "
                "command to resume it, or delete the folder"
            )
    if manifest.texts and not append:
        existing = " ".join(name for one in manifest.texts for name in one.files)
        raise DataError(
            f"{folder}: an index of another text ({existing}); --append adds to it, or pass "
            "another folder"
        )
    return dataclasses.replace(manifest, texts=(*manifest.texts, text))


def _fill(
    writer: "_Writer",
    embedder: Embedder,
    sentences: Iterator[tuple[int, list[str]]],
    progress: Callable[[int, int, int], None],
) -> None:
    """Embed and write the missing sentences of the last text, and mark it as finished."""
    text = writer.manifest.texts[-1]
    num_sentences = sum(part.sentences for part in text.parts)
    num_occurrences = sum(part.uses for part in text.parts)
    if num_sentences:
        _log.info("%s: resuming after %d sentences", writer.folder, num_sentences)
    lines: deque[int] = deque()  # of the sentences inside `embedder.stream`

    def remaining(skip: int) -> Iterator[list[str]]:
        for line, tokens in itertools.islice(sentences, skip, None):
            lines.append(line)
            yield tokens

    layers = [parse_layers(name) for name in writer.manifest.layers]
    for sentence in embedder.stream(remaining(num_sentences), layers=layers):
        line = lines.popleft()
        progress(line, num_sentences, num_occurrences)
        writer.add(line, sentence.tokens, sentence.vectors)
        num_sentences += 1
        num_occurrences += len(sentence.tokens)
    if not num_occurrences:
        raise DataError(f"{' '.join(text.files)}: holds no words; an index needs some text")
    with atomic.explain_write_errors(writer.folder, _ADVICE):
        writer.close_part(finished=True)


class _Writer:
    """Append sentences to the columns; they become valid when their part is closed."""

    def __init__(self, folder: Path, manifest: Manifest, precision: str) -> None:
        self.folder = folder
        self._precision = precision
        storage.write_manifest(folder, manifest)  # first, so that the folder is known to be ours
        self.manifest = _drop_damaged(folder, manifest)
        self._files: dict[str, IO[bytes]] = {}
        for name in self.manifest.columns:
            file = (folder / name).open("ab")
            file.truncate(self.manifest.num_bytes(name))  # what a killed process left behind
            self._files[name] = file
        types = storage.read_types(folder, self.manifest)
        self._word_ids = {word: number for number, word in enumerate(types)}
        self._num_occurrences = self.manifest.num_occurrences
        self._begin_part()

    def _begin_part(self) -> None:
        self._sizes = dict.fromkeys(self._files, 0)
        self._digests = {name: hashlib.sha256() for name in self._files}
        self._part_sentences = self._part_occurrences = 0

    def add(self, line: int, tokens: list[str], vectors: Float[np.ndarray, "L T D"]) -> None:
        """Append a sentence with the vectors of the stored layers."""
        with atomic.explain_write_errors(self.folder, _ADVICE):
            self._add(line, tokens, vectors)
            if self._part_occurrences >= PART_SIZE:
                self.close_part()

    def _add(self, line: int, tokens: list[str], vectors: Float[np.ndarray, "L T D"]) -> None:
        self._num_occurrences += len(tokens)
        self._part_occurrences += len(tokens)
        self._part_sentences += 1
        for layer, chosen in zip(self.manifest.layers, vectors, strict=True):
            self._write(layer_file(layer), normalize(chosen).astype("<f2").tobytes())
        for word in dict.fromkeys(tokens):
            if word not in self._word_ids:
                self._word_ids[word] = len(self._word_ids)
                self._write(TYPES, json.dumps(word).encode() + b"\n")
        word_ids = [self._word_ids[word] for word in tokens]
        self._write(WORDS, np.array(word_ids, "<i4").tobytes())
        self._write(SENTENCES, np.array([self._num_occurrences, line], "<i8").tobytes())

    def _write(self, name: str, data: bytes) -> None:
        self._files[name].write(data)
        self._sizes[name] += len(data)
        self._digests[name].update(data)

    def close_part(self, *, finished: bool = False) -> None:
        """Sync the columns and make the part valid; with `finished`, its text too."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        *before, text = self.manifest.texts
        precision = self.manifest.precision
        if self._part_occurrences:
            precision = precision or self._precision  # an earlier format does not say
            columns = tuple(
                ColumnSlice(name=name, bytes=self._sizes[name], sha256=digest.hexdigest())
                for name, digest in self._digests.items()
            )
            part = Part(
                sentences=self._part_sentences, uses=self._part_occurrences, columns=columns
            )
            text = dataclasses.replace(text, parts=(*text.parts, part))
        texts = (*before, dataclasses.replace(text, whole=finished))
        self.manifest = dataclasses.replace(self.manifest, texts=texts, precision=precision)
        storage.write_manifest(self.folder, self.manifest)
        self._begin_part()

    def close(self) -> None:
        """Close the files; delete them if the index is empty."""
        for file in self._files.values():
            with contextlib.suppress(OSError):  # a full disk, of which the first error tells
                file.close()
        if not any(self.manifest.parts):
            for name in (*self.manifest.columns, MANIFEST, _LOCK):
                (self.folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # the user put other files there
                self.folder.rmdir()


def _drop_damaged(folder: Path, manifest: Manifest) -> Manifest:
    """Return the manifest without the first damaged part of its unfinished text and all after."""
    *before, text = manifest.texts
    damaged: set[Part] = set()
    for column in manifest.columns:
        (folder / column).touch()  # a missing file counts as an empty one
        checked = storage.verify_column(folder, manifest, column)
        bad = {part for part, intact in checked if not intact}
        if bad - set(text.parts):
            raise DataError(f"{folder / column}: damaged; delete {folder} and build it again")
        damaged |= bad
    intact = tuple(itertools.takewhile(lambda part: part not in damaged, text.parts))
    if len(intact) < len(text.parts):
        count = len(text.parts) - len(intact)
        _log.warning("%s: computing %d damaged parts again", folder, count)
    return dataclasses.replace(manifest, texts=(*before, dataclasses.replace(text, parts=intact)))
