r"""The folder of an occurrence index: append-only columns, and index.json that says what is valid.

    index.json        the model, and for every part of every text its share of each column with its
                      sha256; written last, by an atomic rename
    layer-2.f16       unit vector of every occurrence in float16 (N, D); one file per layer
    words.i32         word id of every occurrence: its line in words.jsonl (N,)
    sentences.i64     for every sentence the row after its last token, and its line (S, 2)
    words.jsonl       every distinct word, one JSON string per line, in order of first occurrence
    layer-2.faiss     for large indices: approximate search

A sentence is rebuilt from the words of its occurrences. The writer appends to the columns, syncs
them to disk, and only then replaces index.json. Whatever a killed process left beyond that is
invalid, and the next writer truncates it. A reader that has the index open keeps seeing the old
state.

Vectors have unit length because only cosines are compared: float16 then costs at most 0.0002 in a
cosine, and a query needs no division.
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
from elmore.embed.outputs import check_layers, find_whitening, layers_for_occurrences, parse_layers
from elmore.errors import ConfigError, DataError
from elmore.weights.digest import model_digest

FORMAT = 3  # 2 added whitening, 3 precision
MANIFEST = "index.json"
WORDS, SENTENCES, TYPES = "words.i32", "sentences.i64", "words.jsonl"
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ColumnSlice:
    """The bytes of one column that belong to a part."""

    name: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise ConfigError(f"bytes: expected 0 or more, found {self.bytes}")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive sentences that were written together."""

    sentences: int
    uses: int
    columns: tuple[ColumnSlice, ...]


@dataclass(frozen=True, kw_only=True)
class Text:
    """Files that were indexed together; the digest covers their contents and how they were read."""

    digest: str
    files: tuple[str, ...]
    whole: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Approximate:
    """The faiss file of a layer, and how many occurrences it holds."""

    layer: str
    uses: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of index.json."""

    model: str
    """Digest of the network and its alphabet."""
    name: str
    """Name of the model, for error messages."""
    initial_state: str
    width: int
    layers: tuple[str, ...]
    whitening: str | None = None
    """Digest of the whitening, if its vectors are stored."""
    precision: str | None = None
    """`fast` only where that differs from exact; None: an earlier format, which did not say.

    The first part that is added to such an index records its own precision here, so that no further
    one is added; which one the earlier vectors have stays unknown.
    """
    texts: tuple[Text, ...] = ()
    approximate: tuple[Approximate, ...] = ()
    format: int = FORMAT

    def __post_init__(self) -> None:
        valid = re.compile("average|cloze|whitened|[0-9]{1,3}")
        invalid = [name for name in self.layers if not valid.fullmatch(name)]
        if invalid:  # a layer is part of a file name
            raise ConfigError(
                f"layers: expected numbers, average, cloze or whitened, found {invalid[0][:40]!r}"
            )
        if self.width < 1:
            raise ConfigError(f"width: expected 1 or more, found {self.width}")
        if self.precision not in (None, "exact", "fast"):
            raise ConfigError(f"precision: expected 'exact' or 'fast', found {self.precision!r}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The append-only files."""
        return (*map(layer_file, self.layers), WORDS, SENTENCES, TYPES)

    @property
    def finished(self) -> "Manifest":
        """The same without a text that is still being added."""
        whole = tuple(text for text in self.texts if text.whole)
        return dataclasses.replace(self, texts=whole)

    @property
    def parts(self) -> Iterator[Part]:
        """All parts, in column order."""
        return (part for text in self.texts for part in text.parts)

    @property
    def num_occurrences(self) -> int:
        """N."""
        return sum(part.uses for part in self.parts)

    @property
    def num_sentences(self) -> int:
        """S."""
        return sum(part.sentences for part in self.parts)

    def num_bytes(self, column: str) -> int:
        """Return the number of valid bytes of a column."""
        slices = (one for part in self.parts for one in part.columns)
        return sum(one.bytes for one in slices if one.name == column)


def layer_file(layer: str) -> str:
    """Return the file name of a layer's vectors."""
    return f"layer-{layer}.f16"


def faiss_file(layer: str) -> str:
    """Return the file name of a layer's faiss index."""
    return f"layer-{layer}.faiss"


def resolve_layers(names: Sequence[str], num_layers: int) -> tuple[str, ...]:
    """Resolve top, all, other names and numbers to distinct names as used in file names."""
    resolved: list[str] = []
    for name in names:
        check_layers(parse_layers(name), num_layers)
        every = [str(number) for number in range(num_layers)]
        resolved += {"all": every, "top": every[-1:]}.get(name, [name])
    return tuple(dict.fromkeys(resolved))


def new_manifest(embedder: Embedder, layers: Sequence[str] | None = None) -> Manifest:
    """Return the manifest of an empty index; its layers are the best for occurrences."""
    names = resolve_layers(
        layers or [layers_for_occurrences(embedder.whitening)], embedder.num_layers
    )
    whitening = None
    if "whitened" in names:
        whitening = find_whitening(embedder.whitening).digest
    return Manifest(
        model=model_digest(embedder.bundle),
        name=embedder.bundle.card.name or embedder.bundle.card.source,
        initial_state=embedder.initial_state,
        width=embedder.width,
        layers=names,
        whitening=whitening,
        precision=current_precision(embedder),
    )


def current_precision(embedder: Embedder) -> str:
    """Return the precision that vectors of an embedder have here."""
    return "fast" if embedder.is_fast else "exact"


def read_manifest(folder: Path) -> Manifest:
    """Read index.json."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{folder} holds no {MANIFEST}; build it with 'elmore neighbors MODEL TEXT --index "
            f"{folder}'"
        )
    table = config.read_json(path)
    config.check_format(table, FORMAT, str(path))
    return config.build(Manifest, table, str(path))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace index.json; whatever was appended to the columns becomes valid."""
    newest = dataclasses.replace(manifest, format=FORMAT)
    atomic.write(folder / MANIFEST, json.dumps(config.as_dict(newest), indent=1).encode())


def check_same_model(folder: Path, manifest: Manifest, embedder: Embedder) -> None:
    """Raise an error if another model, initial state, whitening or precision built the index."""
    mine = new_manifest(embedder, ["top"])
    rebuild = "build another index: elmore neighbors MODEL TEXT --index OTHER_FOLDER"
    if (manifest.model, manifest.initial_state) != (mine.model, mine.initial_state):
        theirs, ours = (
            f"{one.name or 'an unnamed model'} ({one.model[:12]}, initial state "
            f"{one.initial_state!r})"
            for one in (manifest, mine)
        )
        raise DataError(
            f"{folder}: an index of another model: built with {theirs}, searched with {ours}; name "
            f"the model it was built with, or {rebuild}"
        )
    stored, current = manifest.whitening, embedder.whitening
    if stored is not None and (current is None or current.digest != stored):
        raise DataError(
            f"{folder}: built with another whitening of {mine.name or 'this model'}; {rebuild}"
        )
    built, precision = manifest.precision, mine.precision
    if built in (None, precision):
        return
    if embedder.precision == built:
        raise DataError(
            f"{folder}: built in {built} precision, this model runs in {precision}, because "
            f"nothing else is faster here; {rebuild}"
        )
    raise DataError(
        f"{folder}: built in {built} precision, this model runs in {precision}; pass --precision "
        f"{built} (precision={built!r} in Python), or {rebuild} --precision {precision}"
    )


def read_types(folder: Path, manifest: Manifest) -> list[str]:
    """Read the distinct words of an index, in order."""
    with (folder / TYPES).open("rb") as file:
        lines = file.read(manifest.num_bytes(TYPES)).splitlines()
    words = strict_json.parse(b"[" + b",".join(lines) + b"]", str(folder / TYPES))
    if not all(isinstance(word, str) for word in words):
        raise DataError(f"{folder / TYPES}: expected one word per line, as a JSON string")
    return words


def verify_column(folder: Path, manifest: Manifest, column: str) -> Iterator[tuple[Part, bool]]:
    """Read a column and yield each part with whether its checksum matches."""
    with (folder / column).open("rb") as file:
        for part in manifest.parts:
            for one in part.columns:
                if one.name == column:
                    yield part, _sha256(file, one.bytes) == one.sha256


def _sha256(file: IO[bytes], size: int) -> str:
    digest = hashlib.sha256()
    while size and (chunk := file.read(min(_CHUNK, size))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()
