"""Build an index of uses, or add a text to one: sentence by sentence, a part at a time.

`use_store.py` says what lies in the folder, and why a kill loses one part at most.
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
from elmore.errors import DataError
from elmore.probe import use_faiss, use_store
from elmore.probe.cosine import unit
from elmore.probe.use_store import (
    MANIFEST,
    SENTENCES,
    TYPES,
    WORDS,
    Manifest,
    Part,
    Stretch,
    Text,
    layer_file,
)
from elmore.probe.use_text import Reading, kept_place, sentences, text_of
from elmore.text.files import Lines

PART_USES = 32768
"""A part is closed by the sentence that makes it so many: what a kill costs at most."""

Progress = Callable[[float | None, int, int], None]
"""Called with how much of the text is read, 0 to 1, and the sentences and uses that are done."""

_LOCK = f"{MANIFEST}.lock"
_log = logging.getLogger(__name__)


def build(
    folder: Path | None,
    embedder: Embedder,
    files: Sequence[str],
    *,
    layers: Sequence[str] | None = None,
    reading: Reading,
    append: bool = False,
    progress: Progress = lambda fraction, sentences, uses: None,
) -> Path:
    """Make an index of a text, go on with one that was stopped, or add a text to one.

    What is there already is not read again. `layers` is top unless the index is there.
    """
    text = text_of(files, reading, embedder)
    folder = folder or kept_place(embedder, text, layers)
    _refuse_foreign(folder)
    if _is_whole(folder, embedder, text, layers) and not use_faiss.is_behind(folder):
        return folder  # who only reads is never refused
    with lock.acquire(folder / _LOCK):
        manifest = _begun(folder, embedder, text, layers, append=append)
        if text.digest not in {one.digest for one in manifest.texts if one.whole}:
            lines = Lines(files, errors=reading.errors, column=reading.column)
            found = sentences(lines, reading, embedder)
            writer = _Writer(folder, manifest)
            with contextlib.closing(writer):
                _fill(writer, embedder, found, lambda *done: progress(lines.fraction, *done))
        use_faiss.extend(folder)
    return folder


def _refuse_foreign(folder: Path) -> None:
    """Refuse to write among the files of somebody else."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} exists and is no folder; pass another name")
    if folder.is_dir() and not (folder / MANIFEST).exists():
        ours = {_LOCK, f"{MANIFEST}.new"}
        names = sorted(path.name for path in folder.iterdir())
        other = [name for name in names if name not in ours and not atomic.is_temporary(name)]
        if other:
            raise DataError(f"{folder} holds {other[0]!r} and is no index; pass another name")


def _is_whole(folder: Path, embedder: Embedder, text: Text, layers: Sequence[str] | None) -> bool:
    """Tell whether an index is there that holds all of a text."""
    if not (folder / MANIFEST).exists():
        return False
    if text.digest not in {one.digest for one in use_store.read(folder).texts if one.whole}:
        return False
    _begun(folder, embedder, text, layers, append=False)  # refuses another model or other layers
    return True


def _begun(
    folder: Path,
    embedder: Embedder,
    text: Text,
    layers: Sequence[str] | None,
    *,
    append: bool,
) -> Manifest:
    """Give the index with the text in it, begun or whole."""
    if not (folder / MANIFEST).exists():
        new = use_store.described(embedder, layers or ["top"])
        return dataclasses.replace(new, texts=(text,))
    manifest = use_store.read(folder)
    use_store.refuse_another_model(folder, manifest, embedder)
    wanted = use_store.kept_layers(layers or manifest.layers, embedder.num_layers)
    if not {*wanted} <= {*manifest.layers}:
        raise DataError(
            f"{folder}: keeps layers {', '.join(manifest.layers)}, asked for {', '.join(wanted)}; "
            "pass another folder for those"
        )
    manifest = dataclasses.replace(  # a text of which nothing is done leaves nothing behind
        manifest, texts=tuple(one for one in manifest.texts if one.whole or one.parts)
    )
    if text.digest in {one.digest for one in manifest.texts}:
        return manifest
    for one in manifest.texts:
        if not one.whole:
            raise DataError(
                f"{folder}: {' '.join(one.files)} was begun and is not finished; the command that "
                "began it goes on with it, or delete the folder"
            )
    if manifest.texts and not append:
        held = " ".join(name for one in manifest.texts for name in one.files)
        raise DataError(
            f"{folder}: an index of another text ({held}); --append adds to it, or pass another "
            "folder"
        )
    return dataclasses.replace(manifest, texts=(*manifest.texts, text))


def _fill(
    writer: "_Writer",
    embedder: Embedder,
    found: Iterator[tuple[int, list[str]]],
    progress: Callable[[int, int], None],
) -> None:
    """Write the parts that are missing; the text of the writer's index is then whole."""
    text = writer.manifest.texts[-1]
    done = sum(part.sentences for part in text.parts)
    uses = sum(part.uses for part in text.parts)
    if done:
        _log.info("%s: going on after %d sentences", writer.folder, done)
    progress(done, uses)
    lines: deque[int] = deque()  # of the sentences that the model is reading

    def rest() -> Iterator[list[str]]:
        for line, tokens in itertools.islice(found, done, None):
            lines.append(line)
            yield tokens

    number = done
    for sentence in embedder.stream(rest(), layers="all"):
        writer.add(lines.popleft(), sentence.tokens, sentence.vectors)
        number, uses = number + 1, uses + len(sentence.tokens)
        progress(number, uses)
    if not uses:
        raise DataError(f"{' '.join(text.files)}: there is no word in it; an index needs some text")
    writer.finish()


class _Writer:
    """Appends to the columns; what is added counts when its part is closed."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        use_store.write(folder, manifest)  # before any other file: whose folder it is
        self.manifest = _sound(folder, manifest)
        self._files: dict[str, IO[bytes]] = {}
        for name in self.manifest.columns:
            file = (folder / name).open("ab")
            file.truncate(self.manifest.num_bytes(name))  # what a kill left behind
            self._files[name] = file
        types = use_store.read_types(folder, self.manifest)
        self._numbers = {word: number for number, word in enumerate(types)}
        self._uses = self.manifest.num_uses
        self._begin_part()

    def _begin_part(self) -> None:
        self._sizes = dict.fromkeys(self._files, 0)
        self._digests = {name: hashlib.sha256() for name in self._files}
        self._part_sentences = self._part_uses = 0

    def add(self, line: int, tokens: list[str], vectors: Float[np.ndarray, "L T D"]) -> None:
        """Append a sentence, with all layers of it."""
        self._uses += len(tokens)
        self._part_uses += len(tokens)
        self._part_sentences += 1
        for layer in self.manifest.layers:
            chosen = vectors.mean(axis=0) if layer == "average" else vectors[int(layer)]
            self._write(layer_file(layer), unit(chosen).astype("<f2").tobytes())
        for word in dict.fromkeys(tokens):
            if word not in self._numbers:
                self._numbers[word] = len(self._numbers)
                self._write(TYPES, json.dumps(word).encode() + b"\n")
        numbers = [self._numbers[word] for word in tokens]
        self._write(WORDS, np.array(numbers, "<i4").tobytes())
        self._write(SENTENCES, np.array([self._uses, line], "<i8").tobytes())
        if self._part_uses >= PART_USES:
            self._close_part(whole=False)

    def _write(self, name: str, data: bytes) -> None:
        self._files[name].write(data)
        self._sizes[name] += len(data)
        self._digests[name].update(data)

    def finish(self) -> None:
        """Close the last part, and the text with it."""
        self._close_part(whole=True)

    def _close_part(self, *, whole: bool) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        *before, text = self.manifest.texts
        if self._part_uses:
            columns = tuple(
                Stretch(name=name, bytes=self._sizes[name], sha256=digest.hexdigest())
                for name, digest in self._digests.items()
            )
            part = Part(sentences=self._part_sentences, uses=self._part_uses, columns=columns)
            text = dataclasses.replace(text, parts=(*text.parts, part))
        texts = (*before, dataclasses.replace(text, whole=whole))
        self.manifest = dataclasses.replace(self.manifest, texts=texts)
        use_store.write(self.folder, self.manifest)
        self._begin_part()

    def close(self) -> None:
        """Let go of the files; of an index in which nothing is done they are deleted."""
        for file in self._files.values():
            file.close()
        if not any(self.manifest.parts):
            for name in (*self.manifest.columns, MANIFEST, _LOCK):
                (self.folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody has put something there
                self.folder.rmdir()


def _sound(folder: Path, manifest: Manifest) -> Manifest:
    """Give the index without the parts of its unfinished text from the first damaged one on."""
    *before, text = manifest.texts
    damaged: set[Part] = set()
    for column in manifest.columns:
        (folder / column).touch()  # one that is missing is one cut short
        found = {part for part, sound in use_store.checked(folder, manifest, column) if not sound}
        if found - set(text.parts):
            raise DataError(f"{folder / column}: damaged; delete {folder} and build it again")
        damaged |= found
    kept = tuple(itertools.takewhile(lambda part: part not in damaged, text.parts))
    if len(kept) < len(text.parts):
        _log.warning("%s: %d damaged parts are done again", folder, len(text.parts) - len(kept))
    return dataclasses.replace(manifest, texts=(*before, dataclasses.replace(text, parts=kept)))
