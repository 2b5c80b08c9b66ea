"""Sense-annotated text in the format of Raganato et al. (2017): `X.data.xml` and `X.gold.key.txt`.

    <corpus><text id="d0"><sentence id="d0.s0">
    <wf lemma="the" pos="DET">The</wf>
    <instance id="d0.s0.t0" lemma="art" pos="NOUN">art</instance> ...

and for each instance a line of the key file: its id, then the sense keys that count as right.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from elmore.errors import DataError
from elmore.probe.wordnet import POS
from elmore.text.files import Lines, numbered_lines

_DATA, _KEYS = ".data.xml", ".gold.key.txt"
_PACKED = ("", ".xz", ".gz")


class Instance(NamedTuple):
    """A use of a lemma: words `start` to `end` of its sentence, and the senses that are right."""

    id: str
    lemma: str
    pos: str
    start: int
    end: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, the document it stands in, and its annotated uses."""

    document: str
    words: list[str] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)


class SenseCorpus:
    """The sentences of one corpus that hold an annotated use, read anew at each iteration.

    `path` is `X.data.xml`, packed or not, or the folder that holds it; the keys lie beside it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = _data(Path(path))
        stem, _, packing = self.path.name.partition(_DATA)
        if _DATA not in self.path.name or packing not in _PACKED:
            raise DataError(f"{self.path}: expected a file named X{_DATA}, packed or not")
        self.name = stem
        self._keys = _read_keys(_beside(self.path.with_name(stem + _KEYS), self.path))

    def __iter__(self) -> Iterator[Sentence]:
        reader = _Reader(self.path, self._keys)
        for line in Lines([str(self.path)]):
            assert isinstance(line, str)  # the name ends in neither .jsonl nor .parquet
            for sentence in reader.feed(f"{line}\n"):
                if sentence.instances:
                    yield sentence
        reader.feed("", last=True)
        left = self._keys.keys() - reader.seen
        if left:
            raise DataError(
                f"{self.path} holds no instance {min(left)!r}, for which there is a gold key; "
                "are the two files from the same corpus?"
            )


class _Reader:
    """What the XML parser found, sentence by sentence; no tree is built."""

    def __init__(self, path: Path, keys: dict[str, tuple[str, ...]]) -> None:
        self.seen: set[str] = set()
        self._path, self._keys = path, keys
        self._open: list[str] = []
        self._document = ""
        self._sentence: Sentence | None = None
        self._done: list[Sentence] = []
        self._attributes: dict[str, str] = {}
        self._text = ""
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype

    def feed(self, text: str, *, last: bool = False) -> list[Sentence]:
        """Read on, and give the sentences that ended."""
        self._done = []
        try:
            self._parser.Parse(text, last)
        except expat.ExpatError as error:
            raise DataError(f"{self._path}: not well-formed XML ({error})") from error
        return self._done

    def _refuse_doctype(self, *_: object) -> None:
        # Entities are declared there, and a few lines of them can grow to fill the memory.
        raise DataError(
            f"{self._path}: holds a DOCTYPE, which this format has no use for; remove it"
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "corpus":
            raise DataError(f"{self._path}: expected <corpus> as its root, found <{name}>")
        self._open.append(name)
        self._attributes, self._text = attributes, ""
        if name == "text":
            self._document = self._attribute("id")
        elif name == "sentence":
            if self._sentence is not None:
                raise self._wrong("a sentence begins inside of a sentence")
            self._sentence = Sentence(self._document)

    def _characters(self, text: str) -> None:
        self._text += text

    def _end(self, name: str) -> None:
        self._open.pop()
        if name in ("wf", "instance"):
            self._word(name)
        elif name == "sentence":
            assert self._sentence is not None
            self._done.append(self._sentence)
            self._sentence = None

    def _word(self, name: str) -> None:
        if self._sentence is None:
            raise self._wrong(f"<{name}> stands outside of a sentence")
        # "took place" or "such_as" is one unit here, but several words in the text that models are
        # trained on, so it is read as those. All else, like the quotes `` and '', stays as it is.
        words = self._text.replace("_", " ").split() or self._text.split()
        start = len(self._sentence.words)
        self._sentence.words.extend(words)
        if name == "instance":
            if not words:
                raise self._wrong(f"instance {self._attribute('id')!r} has no text")
            self._sentence.instances.append(self._instance(start, start + len(words)))

    def _instance(self, start: int, end: int) -> Instance:
        id, lemma, pos = (self._attribute(key) for key in ("id", "lemma", "pos"))
        if pos not in POS:
            raise self._wrong(f"instance {id!r} has pos {pos!r}, expected one of {', '.join(POS)}")
        if id in self.seen:
            raise self._wrong(f"instance {id!r} stands there twice")
        if id not in self._keys:
            raise self._wrong(f"instance {id!r} has no gold key; add it to the key file")
        self.seen.add(id)
        return Instance(id, lemma.lower(), pos, start, end, self._keys[id])

    def _attribute(self, key: str) -> str:
        if key not in self._attributes:
            raise self._wrong(f"an element lacks its {key!r}")
        return self._attributes[key]

    def _wrong(self, what: str) -> DataError:
        return DataError(f"{self._path}: line {self._parser.CurrentLineNumber}: {what}")


def _data(path: Path) -> Path:
    if not path.is_dir():
        return _beside(path, path) if path.name.endswith(_DATA) else path
    found = sorted(inside for inside in path.iterdir() if _DATA in inside.name)
    if len(found) != 1:
        raise DataError(f"{path}: expected one file named X{_DATA} in it, found {len(found)}")
    return found[0]


def _beside(path: Path, asked: Path) -> Path:
    """Give the file under its plain or a packed name."""
    for packing in _PACKED:
        packed = path.with_name(path.name + packing)
        if packed.is_file():
            return packed
    raise DataError(f"{asked}: there is no {path.name}, packed or not, in {path.parent}")


def _read_keys(path: Path) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    for place, line in numbered_lines(path):
        id, *senses = line.split() or [""]
        if not senses:
            raise DataError(f"{place}: expected an id and its keys, found {line!r}")
        if id in keys:
            raise DataError(f"{place}: {id!r} has keys already")
        keys[id] = tuple(dict.fromkeys(senses))
    return keys
