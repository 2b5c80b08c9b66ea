"""The text that an index of uses is of: what it is known by, where that is kept, its sentences."""

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
from elmore.probe import use_store
from elmore.probe.use_store import Text
from elmore.text.files import STDIN, expand_patterns
from elmore.weights import checksums


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the files of a text are read."""

    tokenized: bool = False
    """A line is a sentence, its tokens between spaces; else lines are split into sentences."""
    column: str = "text"
    errors: Literal["strict", "replace"] = "strict"


def text_of(files: Sequence[str], reading: Reading, embedder: Embedder) -> Text:
    """Know a text again, by what is in its files and how they are read."""
    names = expand_patterns([str(name) for name in files])
    if not names or STDIN in names:
        raise DataError("an index is of files, which can be read again after a kill; name some")
    tokenizer = getattr(embedder.tokenizer, "__qualname__", type(embedder.tokenizer).__qualname__)
    content = [(Path(name).suffixes[-2:], checksums.file_sha256(Path(name))) for name in names]
    said = json.dumps([content, dataclasses.astuple(reading), tokenizer])
    digest = hashlib.sha256(said.encode()).hexdigest()
    return Text(digest=digest, files=tuple(Path(name).name for name in names))


def kept_place(embedder: Embedder, text: Text, layers: Sequence[str] | None) -> Path:
    """Say where the index of a text is kept when nobody says where: its layers end its name."""
    new = use_store.described(embedder, layers or ["top"])
    said = json.dumps([new.model, new.initial_state, text.digest])
    stem = hashlib.sha256(said.encode()).hexdigest()[:32]
    place = cache.cache_dir() / "uses"
    for found in sorted(place.glob(f"{stem}-*")):
        if {*new.layers} <= {*found.name.split("-")[1:]}:  # one with more of them will do
            return found
    return place / "-".join([stem, *new.layers])


def sentences(
    lines: Iterable[str | list[str]], reading: Reading, embedder: Embedder
) -> Iterator[tuple[int, list[str]]]:
    """Give the tokens of every sentence, and the line it stands on, from 0."""
    for number, line in enumerate(lines):
        words = line.split() if reading.tokenized and isinstance(line, str) else line
        for part in tokenize_text(words, embedder.tokenizer, split_sentences=True).segments:
            if part:
                yield number, part
