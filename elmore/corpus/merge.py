"""Merge finished parts into a corpus: count the words, number them by count, renumber the text.

Parts are read one by one. Memory grows only with the distinct words, about 200 bytes each.
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
from elmore.corpus.journal import PrepareJournal
from elmore.corpus.options import PrepareOptions
from elmore.corpus.writer import CorpusWriter
from elmore.errors import DataError
from elmore.text.vocabulary import ELMO_MARKS, Vocabulary

SHARD_TOKENS = 1 << 26
"""A shard ends with the part that reaches this size: 256 MB."""

_log = logging.getLogger(__name__)


def merge_parts(
    journal: PrepareJournal,
    manifests: Sequence[dict[str, Any]],
    folder: Path,
    vocabulary: Vocabulary | None,
    progress: Callable[[float], None],
) -> None:
    """Write the corpus into a folder, with the given vocabulary or a new one."""
    types = _TypeCounts()
    for number in range(len(manifests)):
        types.add(*journal.words(number))
        progress(0.5 * number / len(manifests))
    types.sort_by_count()
    vocabulary = vocabulary or types.vocabulary(journal.job)
    writer = CorpusWriter(folder)
    byte_counts = writer.write_types(types, types.counts)
    writer.write_vocabulary(vocabulary)
    known = shards.word_ids(types, vocabulary) != vocabulary.ids([vocabulary.marks.unknown])
    unknown = {"train": 0, "valid": 0}

    def pieces(numbers: Sequence[int], split: str) -> Iterator[Int64[np.ndarray, " N"]]:
        for number in numbers:
            final = types.numbers(journal.words(number)[0])
            stream = final[journal.stream(number, split)]
            unknown[split] += int(np.count_nonzero(~known[stream]))
            yield stream
            progress(0.5 + 0.5 * number / len(manifests))

    for split in ("train", "valid"):
        lengths = [manifest[split] for manifest in manifests]
        for numbers in _group_into_shards(lengths):
            writer.write_shard(split, pieces(numbers, split), sum(lengths[i] for i in numbers))
    writer.write_index(
        unknown=unknown,
        num_types=len(types.counts),
        byte_counts=byte_counts,
        provenance=asdict(journal.job),
    )


def _group_into_shards(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of the parts of each shard."""
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


class _TypeCounts:
    """The distinct words of all parts: first in order of appearance, then by count."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._final = np.zeros(0, np.int64)
        self._words: list[str] = []
        self.counts = np.zeros(1 << 16, np.int64)
        self._num_sentences = 0

    def add(self, words: list[str], counts: Int64[np.ndarray, " words+1"]) -> None:
        """Add the counts of a part."""
        numbers = self._provisional(words)
        if len(self._numbers) > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(len(self._numbers), np.int64)])
        self.counts[numbers] += counts[1:]
        self._num_sentences += int(counts[0])

    def _provisional(self, words: list[str]) -> Int64[np.ndarray, " words"]:
        return np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))

    def sort_by_count(self) -> None:
        """Assign ids by decreasing count, ties by string; the special tokens come first."""
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
        """Return the final number of each number of a part."""
        return np.append(shards.BOUNDARY, self._final[self._provisional(words)])

    def vocabulary(self, options: PrepareOptions) -> Vocabulary:
        """Return the words that are frequent enough, up to the maximum size."""
        frequent = int(np.count_nonzero(self.counts[len(shards.MARKS) :] >= options.min_count))
        if not frequent:
            most = int(self.counts[len(shards.MARKS) :].max(initial=0))
            raise DataError(
                f"no word occurs {options.min_count} times or more (the most frequent one "
                f"{most} times); start again with a lower --min-count and --overwrite"
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
