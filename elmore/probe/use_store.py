r"""The folder of an index of uses: columns that only ever grow, and index.json that says how far.

    index.json        what the index is, and of every part of every text how much of each column it
                      takes and its sha256; written last, aside and renamed
    layer-2.f16       the vector of every use, of length one, in float16 (N, D); one file a layer
    words.i32         which word every use is of, its number in words.jsonl (N,)
    sentences.i64     of every sentence how many uses there are up to its end, and its line (S, 2)
    words.jsonl       every distinct word, a JSON string a line, in the order of their first uses
    layer-2.faiss     where there are many uses: a quick way to most of the nearest

The text of a sentence is the words of its uses. A writer appends, waits for the disk, and then
writes index.json: what a kill leaves beyond that does not count, and is cut off by the next writer.
Who has the index open meanwhile sees what was there, unchanged.

Vectors have length one because only angles are compared, which leaves float16 an error of 0.0002
in a cosine and spares a division for every use of every query.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from elmore import atomic, config, strict_json
from elmore.embed.embedder import Embedder
from elmore.embed.jobs.job import model_digest
from elmore.embed.outputs import check_layers, parse_layers
from elmore.errors import ConfigError, DataError

FORMAT = 1
MANIFEST = "index.json"
WORDS, SENTENCES, TYPES = "words.i32", "sentences.i64", "words.jsonl"
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What a part takes of one column."""

    name: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise ConfigError(f"bytes: expected 0 or more, found {self.bytes}")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some sentences, done."""

    sentences: int
    uses: int
    columns: tuple[Stretch, ...]


@dataclass(frozen=True, kw_only=True)
class Text:
    """What was read at once, known again by the bytes of its files and how they were read."""

    digest: str
    files: tuple[str, ...]
    whole: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Approximate:
    """The faiss file of a layer, and how many of the uses are in it."""

    layer: str
    uses: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What index.json says."""

    model: str
    """A digest of the network and its alphabet."""
    name: str
    """What the model is called, for messages."""
    initial_state: str
    width: int
    layers: tuple[str, ...]
    texts: tuple[Text, ...] = ()
    approximate: tuple[Approximate, ...] = ()
    format: int = FORMAT

    def __post_init__(self) -> None:
        odd = [name for name in self.layers if not re.fullmatch("average|[0-9]{1,3}", name)]
        if odd:  # it is part of the name of a file
            raise ConfigError(f"layers: expected numbers or average, found {odd[0][:40]!r}")
        if self.width < 1:
            raise ConfigError(f"width: expected 1 or more, found {self.width}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The files that grow."""
        return (*map(layer_file, self.layers), WORDS, SENTENCES, TYPES)

    @property
    def done(self) -> "Manifest":
        """The same without what is being added."""
        whole = tuple(text for text in self.texts if text.whole)
        return dataclasses.replace(self, texts=whole)

    @property
    def parts(self) -> Iterator[Part]:
        """All parts, in the order in which they lie in the columns."""
        return (part for text in self.texts for part in text.parts)

    @property
    def num_uses(self) -> int:
        """N."""
        return sum(part.uses for part in self.parts)

    @property
    def num_sentences(self) -> int:
        """S."""
        return sum(part.sentences for part in self.parts)

    def num_bytes(self, column: str) -> int:
        """Say how much of a column counts."""
        return sum(
            stretch.bytes
            for part in self.parts
            for stretch in part.columns
            if stretch.name == column
        )


def layer_file(layer: str) -> str:
    """Name the vectors of a layer."""
    return f"layer-{layer}.f16"


def faiss_file(layer: str) -> str:
    """Name the faiss index of a layer."""
    return f"layer-{layer}.faiss"


def kept_layers(names: Sequence[str], num_layers: int) -> tuple[str, ...]:
    """Resolve top, all, average and numbers to what the files are called, each once."""
    found: list[str] = []
    for name in names:
        check_layers(parse_layers(name), num_layers)
        every = [str(number) for number in range(num_layers)]
        found += {"all": every, "top": every[-1:]}.get(name, [name])
    return tuple(dict.fromkeys(found))


def described(embedder: Embedder, layers: Sequence[str]) -> Manifest:
    """Say what an index of a model would be, before there is anything in it."""
    return Manifest(
        model=model_digest(embedder.bundle),
        name=embedder.bundle.card.name or embedder.bundle.card.source,
        initial_state=embedder.initial_state,
        width=embedder.width,
        layers=kept_layers(layers, embedder.num_layers),
    )


def read(folder: Path) -> Manifest:
    """Read what a folder says it is."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{folder} holds no {MANIFEST}; build it with 'elmore neighbors MODEL TEXT --index "
            f"{folder}'"
        )
    table = config.read_json(path)
    config.check_format(table, FORMAT, str(path))
    return config.build(Manifest, table, str(path))


def write(folder: Path, manifest: Manifest) -> None:
    """Say how far the columns count from now on."""
    atomic.write(folder / MANIFEST, json.dumps(config.as_dict(manifest), indent=1).encode())


def refuse_another_model(folder: Path, found: Manifest, embedder: Embedder) -> None:
    """Refuse vectors of which the query's would not be a neighbour."""
    mine = described(embedder, ["top"])
    if (found.model, found.initial_state) == (mine.model, mine.initial_state):
        return
    theirs, ours = (
        f"{one.name or 'a model without a name'} ({one.model[:12]}, initial state "
        f"{one.initial_state!r})"
        for one in (found, mine)
    )
    raise DataError(
        f"{folder}: an index of another model: built with {theirs}, and asked with {ours}; name "
        "the one it was built with, or build another"
    )


def read_types(folder: Path, manifest: Manifest) -> list[str]:
    """Read the words of an index, in their order."""
    with (folder / TYPES).open("rb") as file:
        lines = file.read(manifest.num_bytes(TYPES)).splitlines()
    words = strict_json.parse(b"[" + b",".join(lines) + b"]", str(folder / TYPES))
    if not all(isinstance(word, str) for word in words):
        raise DataError(f"{folder / TYPES}: expected a word a line, as a JSON string")
    return words


def checked(folder: Path, manifest: Manifest, column: str) -> Iterator[tuple[Part, bool]]:
    """Read a column through, and say of each part whether it is as it was written."""
    with (folder / column).open("rb") as file:
        for part in manifest.parts:
            for stretch in part.columns:
                if stretch.name == column:
                    yield part, _digest(file, stretch.bytes) == stretch.sha256


def _digest(file: IO[bytes], left: int) -> str:
    digest = hashlib.sha256()
    while left and (chunk := file.read(min(_CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()
