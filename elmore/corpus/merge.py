"""Finished parts to one corpus: words counted over all, numbered by count, streams renumbered.

The parts are read one after another. What grows with the text is only the table of its distinct
words, some 200 bytes each.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from elmore.corpus import shards
from elmore.corpus.options import Options
from elmore.corpus.parts import Parts
from elmore.corpus.writer import Writer
from elmore.errors import DataError
from elmore.text.vocabulary import ELMO_MARKS, Vocabulary

SHARD_TOKENS = 1 << 26
"""A shard ends with the part that fills it: 256 MB."""

_log = logging.getLogger(__name__)


def merge(
    parts: Parts,
    notes: Sequence[dict[str, Any]],
    folder: Path,
    vocabulary: Vocabulary | None,
    progress: Callable[[float], None],
) -> None:
    """Write the corpus of the parts into a folder; a given vocabulary is kept as it is."""
    types = _Types()
    for number in range(len(notes)):
        types.add(*parts.words(number))
        progress(0.5 * number / len(notes))
    types.order()
    vocabulary = vocabulary or types.vocabulary(parts.job)
    writer = Writer(folder)
    byte_counts = writer.types(types, types.counts)
    writer.vocabulary(vocabulary)
    known = shards.word_ids(types, vocabulary) != vocabulary.ids([vocabulary.marks.unknown])
    unknown = {"train": 0, "valid": 0}

    def pieces(numbers: Sequence[int], split: str) -> Iterator[Int64[np.ndarray, " N"]]:
        for number in numbers:
            final = types.numbers(parts.words(number)[0])
            stream = final[parts.stream(number, split)]
            unknown[split] += int(np.count_nonzero(~known[stream]))
            yield stream
            progress(0.5 + 0.5 * number / len(notes))

    for split in ("train", "valid"):
        lengths = [note[split] for note in notes]
        for numbers in _grouped(lengths):
            writer.shard(split, pieces(numbers, split), sum(lengths[i] for i in numbers))
    writer.finish(
        unknown=unknown,
        num_types=len(types.counts),
        byte_counts=byte_counts,
        provenance=asdict(parts.job),
    )


def _grouped(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Say which parts go into one shard."""
    group: list[int] = []
    size = 0
    for number, length in enumerate(lengths):
        if size >= SHARD_TOKENS:
            yield group
            group, size = [], 0
        if length:
            group.append(number)
            size += length
    if group:
        yield group


class _Types:
    """The distinct words of all parts: first as they come, then by falling count."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._final = np.zeros(0, np.int64)
        self._words: list[str] = []
        self.counts = np.zeros(1 << 16, np.int64)
        self._num_sentences = 0

    def add(self, words: list[str], counts: Int64[np.ndarray, " words+1"]) -> None:
        """Count the words of a part."""
        numbers = self._provisional(words)
        if len(self._numbers) > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(len(self._numbers), np.int64)])
        self.counts[numbers] += counts[1:]
        self._num_sentences += int(counts[0])

    def _provisional(self, words: list[str]) -> Int64[np.ndarray, " words"]:
        return np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))

    def order(self) -> None:
        """Number the words by falling count, equals as strings are ordered; the marks first."""
        words = sorted(self._numbers)
        numbers = self._provisional(words)
        order = np.argsort(-self.counts[numbers], kind="stable")
        self._words = [words[i] for i in order.tolist()]
        marks = [self._num_sentences] * len(shards.MARKS)
        self._final = np.zeros(len(words), np.int64)
        self._final[numbers[order]] = np.arange(len(words)) + len(marks)
        self.counts = np.concatenate([marks, self.counts[numbers[order]]])

    def __iter__(self) -> Iterator[str]:
        return chain(shards.MARKS, self._words)

    def numbers(self, words: list[str]) -> Int64[np.ndarray, " words+1"]:
        """Give the final number of each number of a part."""
        return np.append(shards.BOUNDARY, self._final[self._provisional(words)])

    def vocabulary(self, options: Options) -> Vocabulary:
        """Cut the list of words by size and by count."""
        frequent = int(np.count_nonzero(self.counts[len(shards.MARKS) :] >= options.min_count))
        if not frequent:
            most = int(self.counts[len(shards.MARKS) :].max(initial=0))
            raise DataError(
                f"no word occurs {options.min_count} times or more (the most frequent one "
                f"{most} times); start over with a lower --min-count and --overwrite"
            )
        if frequent < options.vocabulary_size:
            _log.info(
                "%d words occur often enough, fewer than %d: the vocabulary is all of them",
                frequent,
                options.vocabulary_size,
            )
        marks = set(ELMO_MARKS)
        words = [word for word in self._words[:frequent] if word not in marks]
        return Vocabulary((*ELMO_MARKS, *words[: options.vocabulary_size]))
