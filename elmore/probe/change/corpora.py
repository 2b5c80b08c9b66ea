"""The uses of words in a corpus: a text, or an index of one that `elmore neighbors` has built.

A text is read in one pass, which keeps at most `max_uses` random uses of each word, so memory does
not grow with the text. An index has the vectors of all uses already. Case is ignored.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import parse_layers
from elmore.errors import ConfigError, DataError
from elmore.probe.neighbors.index import OccurrenceIndex
from elmore.probe.neighbors.source_text import TextOptions, identify_text, split_lines
from elmore.probe.neighbors.storage import MANIFEST
from elmore.probe.occurrence_map import embed_occurrences
from elmore.probe.occurrences import Occurrence
from elmore.probe.sample import Reservoir
from elmore.text.files import STDIN, Lines, expand_patterns

Progress = Callable[[float | None, int], None]
"""Called with the fraction of the text that has been read, and the number of sentences."""


class Use(NamedTuple):
    """An occurrence of a word in a sentence."""

    tokens: Sequence[str]
    position: int
    line: int
    """Line of the text on which the sentence begins, from 0."""
    row: int | None = None
    """Row in the index, if the corpus is one."""


class Sample(NamedTuple):
    """A random sample of the uses of a word, in the order of the text."""

    uses: list[Use]
    total: int
    """Number of uses in the corpus."""


class PeriodCorpus(Protocol):
    """The text of one period, or an index of it."""

    name: str
    digests: tuple[str, ...]
    """One for each text: the same text has the same digest."""
    is_index: bool
    """Whether vectors are read from an index, which rounds them."""
    layers: tuple[str, ...] | None
    """The layers that an index has stored; None: any layer can be had."""

    def count_words(self, progress: Progress) -> Counter[str]:
        """Count the tokens that consist of letters, in lower case."""
        ...

    def sample_uses(
        self, forms: Mapping[str, str], max_uses: int, seed: int, progress: Progress
    ) -> dict[str, Sample]:
        """Sample the uses of words; `forms` maps each form in lower case to its word."""
        ...

    def embed(self, uses: Sequence[Use], layer: str) -> Float[np.ndarray, "N D"]:
        """Return one vector for each use."""
        ...


def open_period(name: str, embedder: Embedder, options: TextOptions) -> PeriodCorpus:
    """Open a text, a pattern of texts, or the folder of an index."""
    if (Path(name) / MANIFEST).exists():
        return IndexCorpus(name, embedder)
    return TextCorpus(name, embedder, options)


def find_shared_layer(corpora: Sequence[PeriodCorpus], default: str) -> str:
    """Return a layer that can be had of every corpus, the default one if possible.

    Raises:
        ConfigError: There is none: two indexes have stored different layers.
    """
    stored = [corpus.layers for corpus in corpora if corpus.layers is not None]
    shared = set(stored[0]).intersection(*stored[1:]) if stored else {default}
    if not shared:
        each = " and ".join(f"{one.name} ({', '.join(one.layers or ())})" for one in corpora)
        raise ConfigError(
            f"the indexes have stored different layers: {each}; build one of them again"
        )
    return default if default in shared else next(one for one in stored[0] if one in shared)


class TextCorpus:
    """A text that is read anew in each pass."""

    is_index = False
    layers: tuple[str, ...] | None = None

    def __init__(self, name: str, embedder: Embedder, options: TextOptions) -> None:
        self.name = name
        self._embedder, self._options = embedder, options
        names = expand_patterns([name])
        if STDIN in names:
            raise DataError(
                "a corpus cannot be standard input, because it is read again; pass a file"
            )
        self.digests = tuple(identify_text([file], options, embedder).digest for file in names)

    def _sentences(self, progress: Progress) -> Iterator[tuple[int, list[str]]]:
        lines = Lines([self.name], column=self._options.column, errors=self._options.errors)
        number = 0
        for number, (line, tokens) in enumerate(
            split_lines(lines, self._options, self._embedder), start=1
        ):
            yield line, tokens
            progress(lines.fraction, number)
        if not number:
            raise DataError(f"{self.name}: holds no words; a corpus needs some text")

    def count_words(self, progress: Progress) -> Counter[str]:
        """Count the tokens that consist of letters, in lower case."""
        counts = Counter[str]()
        for _, tokens in self._sentences(progress):
            counts.update(token.casefold() for token in tokens if token.isalpha())
        return counts

    def sample_uses(
        self, forms: Mapping[str, str], max_uses: int, seed: int, progress: Progress
    ) -> dict[str, Sample]:
        """Read the text once and sample the uses of each word."""
        found = {word: Reservoir[Use](max_uses, seed) for word in dict.fromkeys(forms.values())}
        for line, tokens in self._sentences(progress):
            interned: list[str] | None = None
            for position, token in enumerate(tokens):
                word = forms.get(token.casefold())
                if word is None:
                    continue
                # Sentences share their words, or a sample of many sentences would fill the memory.
                interned = interned or [sys.intern(one) for one in tokens]
                found[word].add(Use(interned, position, line))
        return {word: Sample(uses.items, uses.num_seen) for word, uses in found.items()}

    def embed(self, uses: Sequence[Use], layer: str) -> Float[np.ndarray, "N D"]:
        """Embed the sentences of the uses."""
        occurrences = [Occurrence(list(use.tokens), use.position, use.position + 1) for use in uses]
        return embed_occurrences(self._embedder, occurrences, parse_layers(layer))


class IndexCorpus:
    """An index of all uses, whose vectors are on disk."""

    is_index = True

    def __init__(self, name: str, embedder: Embedder) -> None:
        self.name = name
        self._index = OccurrenceIndex.open(name, embedder)
        self.digests = self._index.text_digests
        self.layers: tuple[str, ...] | None = self._index.layers

    def count_words(self, progress: Progress) -> Counter[str]:
        """Count the tokens that consist of letters, in lower case."""
        counts = Counter[str]()
        for word, count in self._index.count_words().items():
            if word.isalpha():
                counts[word.casefold()] += count
        progress(1.0, self._index.num_sentences)
        return counts

    def sample_uses(
        self, forms: Mapping[str, str], max_uses: int, seed: int, progress: Progress
    ) -> dict[str, Sample]:
        """Sample rows of the index."""
        by_word: dict[str, list[str]] = {word: [] for word in forms.values()}
        for stored in self._index.count_words():
            if (word := forms.get(stored.casefold())) is not None:
                by_word[word].append(stored)
        samples = {}
        for word, stored_forms in by_word.items():
            rows = Reservoir[int](max_uses, seed)
            for row in self._index.rows_of_words(stored_forms).tolist():
                rows.add(row)
            samples[word] = Sample([self._use(row) for row in rows.items], rows.num_seen)
        progress(1.0, self._index.num_sentences)
        return samples

    def _use(self, row: int) -> Use:
        occurrence = self._index.occurrence(row)
        return Use(occurrence.tokens, occurrence.position, occurrence.line, row)

    def embed(self, uses: Sequence[Use], layer: str) -> Float[np.ndarray, "N D"]:
        """Read the vectors from the index."""
        rows = np.array([use.row for use in uses], np.int64)
        return self._index.vectors(rows, layer)
