"""The text of an index: its identity, its default folder, its sentences."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elmore import cache
from elmore.embed.embedder import Embedder
from elmore.embed.tokenized import tokenize_text
from elmore.errors import DataError
from elmore.probe.neighbors import storage
from elmore.probe.neighbors.storage import Text
from elmore.text.files import STDIN, expand_patterns
from elmore.weights import checksums


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How the files of a text are read."""

    tokenized: bool = False
    """A line is a sentence with spaces between its tokens; else lines are split into sentences."""
    column: str = "text"
    errors: Literal["strict", "replace"] = "strict"


def identify_text(files: Sequence[str], options: TextOptions, embedder: Embedder) -> Text:
    """Return an empty text entry with a digest of the files' contents and the reading options."""
    names = expand_patterns([str(name) for name in files])
    if not names or STDIN in names:
        raise DataError("an index needs files, so that an interrupted build can resume; name some")
    for name in names:
        if Path(name).is_fifo():
            raise DataError(
                f"{name}: a pipe can be read only once; save it as a file and pass that"
            )
    tokenizer = getattr(embedder.tokenizer, "__qualname__", type(embedder.tokenizer).__qualname__)
    content = [(Path(name).suffixes[-2:], checksums.file_sha256(Path(name))) for name in names]
    identity = json.dumps([content, dataclasses.astuple(options), tokenizer])
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return Text(digest=digest, files=tuple(Path(name).name for name in names))


def default_folder(embedder: Embedder, text: Text, layers: Sequence[str] | None) -> Path:
    """Return the folder in the user's cache; its name ends with the stored layers."""
    new = storage.new_manifest(embedder, layers)
    whitening = [new.whitening] if new.whitening else []
    fast = ["fast"] if new.precision == "fast" else []  # exact ones keep the names they had
    identity = json.dumps([new.model, new.initial_state, text.digest, *whitening, *fast])
    stem = hashlib.sha256(identity.encode()).hexdigest()[:32]
    parent = cache.cache_dir() / "uses"
    for existing in sorted(parent.glob(f"{stem}-*")):
        if {*new.layers} <= {*existing.name.split("-")[1:]}:  # it may store more layers
            return existing
    return parent / "-".join([stem, *new.layers])


def split_lines(
    lines: Iterable[str | list[str]], options: TextOptions, embedder: Embedder
) -> Iterator[tuple[int, list[str]]]:
    """Yield every sentence as its line, from 0, and its tokens."""
    for number, line in enumerate(lines):
        words = line.split() if options.tokenized and isinstance(line, str) else line
        for segment in tokenize_text(words, embedder.tokenizer, split_sentences=True).segments:
            if segment:
                yield number, segment
