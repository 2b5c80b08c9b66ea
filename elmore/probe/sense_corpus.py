"""Sense-annotated text in the format of Raganato et al. (2017): `X.data.xml` and `X.gold.key.txt`.

    <corpus><text id="d0"><sentence id="d0.s0">
    <wf lemma="the" pos="DET">The</wf>
    <instance id="d0.s0.t0" lemma="art" pos="NOUN">art</instance> ...

and for each instance a line of the key file: its id, then its gold sense keys. Words are returned
as training text has them: units such as `such_as` are split, and the quotes and brackets of
treebanks (`` '' -LRB-) are plain ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from elmore.errors import DataError
from elmore.probe.wordnet import POS
from elmore.text.files import COMPRESSIONS, Lines, numbered_lines
from elmore.text.treebank import plain_punctuation

_DATA, _KEYS = ".data.xml", ".gold.key.txt"


class Instance(NamedTuple):
    """An annotated occurrence of a lemma: words `start` to `end`, and its gold sense keys."""

    id: str
    lemma: str
    pos: str
    start: int
    end: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, its document, and its annotated instances."""

    document: str
    words: list[str] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)


class SenseCorpus:
    """The sentences of a corpus that have annotated instances; each iteration reads the file again.

    `path` is `X.data.xml`, compressed or not, or its folder; the key file is next to it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = _find_data(Path(path))
        stem, _, suffix = self.path.name.partition(_DATA)
        if _DATA not in self.path.name or suffix not in ("", *COMPRESSIONS):
            raise DataError(f"{self.path}: expected a file named X{_DATA}, compressed or not")
        self.name = stem
        self._keys = _read_keys(_find_file(self.path.with_name(stem + _KEYS), self.path))

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
    """An incremental XML parser: yields sentences without building a tree."""

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
        self._parser.StartDoctypeDeclHandler = self._reject_doctype

    def feed(self, text: str, *, last: bool = False) -> list[Sentence]:
        """Parse more text and return the sentences that it completed."""
        self._done = []
        try:
            self._parser.Parse(text, last)
        except expat.ExpatError as error:
            raise DataError(f"{self._path}: not well-formed XML ({error})") from error
        return self._done

    def _reject_doctype(self, *_: object) -> None:
        # A few lines of entity declarations can expand until the memory is full.
        raise DataError(f"{self._path}: holds a DOCTYPE, which this format does not use; remove it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "corpus":
            raise DataError(f"{self._path}: expected <corpus> as its root, found <{name}>")
        self._open.append(name)
        self._attributes, self._text = attributes, ""
        if name == "text":
            self._document = self._attribute("id")
        elif name == "sentence":
            if self._sentence is not None:
                raise self._error("a sentence begins inside a sentence")
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
            raise self._error(f"<{name}> is outside a sentence")
        # "took place" and "such_as" are one unit here but several words in training text.
        words = self._text.replace("_", " ").split() or self._text.split()
        start = len(self._sentence.words)
        self._sentence.words.extend(map(plain_punctuation, words))
        if name == "instance":
            if not words:
                raise self._error(f"instance {self._attribute('id')!r} has no text")
            self._sentence.instances.append(self._instance(start, start + len(words)))

    def _instance(self, start: int, end: int) -> Instance:
        id, lemma, pos = (self._attribute(key) for key in ("id", "lemma", "pos"))
        if pos not in POS:
            raise self._error(f"instance {id!r} has pos {pos!r}, expected one of {', '.join(POS)}")
        if id in self.seen:
            raise self._error(f"instance {id!r} appears twice")
        if id not in self._keys:
            raise self._error(f"instance {id!r} has no gold key; add it to the key file")
        self.seen.add(id)
        return Instance(id, lemma.lower(), pos, start, end, self._keys[id])

    def _attribute(self, key: str) -> str:
        if key not in self._attributes:
            raise self._error(f"an element lacks its {key!r}")
        return self._attributes[key]

    def _error(self, problem: str) -> DataError:
        return DataError(f"{self._path}: line {self._parser.CurrentLineNumber}: {problem}")


def _find_data(path: Path) -> Path:
    if not path.is_dir():
        return _find_file(path, path) if path.name.endswith(_DATA) else path
    candidates = sorted(inside for inside in path.iterdir() if _DATA in inside.name)
    if len(candidates) != 1:
        raise DataError(f"{path}: expected one file named X{_DATA} in it, found {len(candidates)}")
    return candidates[0]


def _find_file(path: Path, requested: Path) -> Path:
    """Return the file, plain or compressed."""
    for suffix in ("", *COMPRESSIONS):
        candidate = path.with_name(path.name + suffix)
        if candidate.is_file():
            return candidate
    raise DataError(f"{requested}: there is no {path.name}, compressed or not, in {path.parent}")


def _read_keys(path: Path) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    for where, line in numbered_lines(path):
        id, *senses = line.split() or [""]
        if not senses:
            raise DataError(f"{where}: expected an id and its keys, found {line!r}")
        if id in keys:
            raise DataError(f"{where}: {id!r} has keys already")
        keys[id] = tuple(dict.fromkeys(senses))
    return keys
