"""The journal of a comparison: the result of each word, complete on disk or absent.

A folder in the user's cache, named after everything that determines the results. `words.json` has
the words to measure, written when the corpora have been read; `word-00012.json` has the result of a
word. So a killed process loses one word, and the same command continues, or prints what is there.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from elmore import atomic, cache, config
from elmore.errors import ElmoreError
from elmore.journal import Journal
from elmore.probe.change.measures import Scores
from elmore.probe.occurrences import Occurrence

FORMAT = 1
_WORDS = "words.json"


@dataclass(frozen=True, kw_only=True)
class ChangeJob:
    """Everything that determines the results."""

    model: str
    """Hash of the network and its alphabet."""
    initial_state: str
    precision: str
    layer: str
    whitening: str
    """Digest of the whitening, if its vectors are compared; else empty."""
    old: str
    """Hash of the texts, and of whether they are in an index."""
    new: str
    words: str
    """Hash of the words and their forms; empty if all words are compared."""
    min_uses: int
    max_uses: int
    max_words: int
    seed: int
    format: int = FORMAT

    @property
    def folder(self) -> Path:
        """Where the results are kept."""
        digest = hashlib.sha256(json.dumps(dataclasses.asdict(self)).encode()).hexdigest()
        return cache.cache_dir() / "change" / digest[:32]


@dataclass(frozen=True, kw_only=True)
class WordCount:
    """A word, and how often it occurs in each period."""

    word: str
    old: int
    new: int


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words to measure, and those that are too rare."""

    measured: tuple[WordCount, ...]
    left_out: tuple[WordCount, ...]
    format: int = FORMAT


@dataclass(frozen=True, kw_only=True)
class SenseCluster:
    """Uses that are similar: a sense, as far as the vectors can tell."""

    old: int
    """Number of old uses."""
    new: int
    old_share: float
    """Fraction of the old uses."""
    new_share: float
    example: int
    """Which of the uses is in its middle, from 0."""


@dataclass(frozen=True, kw_only=True)
class PeriodUse:
    """A use with its place on the map, and how far it moved."""

    period: Literal["old", "new"]
    line: int
    tokens: tuple[str, ...]
    position: int
    cluster: int
    """From 0, the largest cluster."""
    moved: float
    x: float
    y: float

    @property
    def occurrence(self) -> Occurrence:
        """The occurrence alone."""
        return Occurrence(list(self.tokens), self.position, self.position + 1)


@dataclass(frozen=True, kw_only=True)
class WordChange:
    """The change of a word between two periods."""

    word: str
    old: int
    """Number of uses in the old corpus."""
    new: int
    old_sample: int
    """Number of uses that were measured."""
    new_sample: int
    scores: Scores
    senses: tuple[SenseCluster, ...]
    """The largest first."""
    silhouette: float | None
    """How distinct the senses are, from -1 to 1; None if there is only one."""
    variance: tuple[float, ...]
    """Fraction of the variance on each axis of the map."""
    uses: tuple[PeriodUse, ...]
    format: int = FORMAT


class ChangeJournal(Journal[ChangeJob]):
    """The folder of one comparison; one process at a time may use it."""

    FILES = re.compile(r"words\.json(\.new)?|word-\d+\.json(\.new)?")
    FOLDERS = frozenset()

    def words(self) -> Words | None:
        """Return the words, or None if the corpora have not been read to the end."""
        return _read(Words, self.folder / _WORDS)

    def write_words(self, words: Words) -> None:
        """Store the words."""
        _write(self.folder / _WORDS, words)

    def change(self, number: int) -> WordChange | None:
        """Return the result of a word, or None if it is missing or damaged."""
        return _read(WordChange, self._path(number))

    def write_change(self, number: int, change: WordChange) -> None:
        """Store the result of a word."""
        _write(self._path(number), change)

    def _path(self, number: int) -> Path:
        return self.folder / f"word-{number:05}.json"


Content = TypeVar("Content", Words, WordChange)


def _read(kind: type[Content], path: Path) -> Content | None:
    with contextlib.suppress(ElmoreError):  # whatever is damaged is measured again
        if path.is_file():
            table = config.read_json(path)
            config.check_format(table, FORMAT, str(path))
            return config.build(kind, table, str(path))
    return None


def _write(path: Path, content: Words | WordChange) -> None:
    advice = "free some space and run the same command to resume"
    with atomic.explain_write_errors(path, advice):
        atomic.write(path, json.dumps(config.as_dict(content)).encode())
