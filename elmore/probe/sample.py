"""Text for a probe: tokenized sentences, and a random sample of them in bounded memory."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np

from elmore.errors import ConfigError
from elmore.text.sentences import split_sentences
from elmore.text.tokenizers import penn, whitespace

Item = TypeVar("Item")


def tokenize_lines(
    lines: Iterable[str | list[str]], *, tokenized: bool = False, split: bool = False
) -> Iterator[list[str]]:
    """Yield the tokens of each line, or with `split` of each sentence; empty ones are skipped.

    With `tokenized` a line is split on spaces only. A list of tokens is yielded as it is.
    """
    tokenizer = whitespace if tokenized else penn
    for line in lines:
        if not isinstance(line, str):
            sentences = [line]
        elif split:
            sentences = [tokenizer(line[start:end]).words for start, end in split_sentences(line)]
        else:
            sentences = [tokenizer(line).words]
        yield from (words for words in sentences if words)


class Reservoir(Generic[Item]):
    """A uniform sample of the items seen so far, in bounded memory (Vitter, 1985, algorithm R)."""

    def __init__(self, size: int, seed: int) -> None:
        if size < 1:
            raise ConfigError(f"the sample size must be at least 1, found {size}")
        self.num_seen = 0
        self._size = size
        self._generator = np.random.default_rng(seed)
        self._drawn: list[tuple[int, Item]] = []

    def add(self, item: Item) -> None:
        """See one more item, and maybe keep it in place of another."""
        position, self.num_seen = self.num_seen, self.num_seen + 1
        if len(self._drawn) < self._size:
            self._drawn.append((position, item))
        elif (replaced := int(self._generator.integers(self.num_seen))) < self._size:
            self._drawn[replaced] = (position, item)

    @property
    def items(self) -> list[Item]:
        """The sample, in the order in which its items were seen."""
        return [item for _, item in sorted(self._drawn, key=lambda pair: pair[0])]


def reservoir_sample(items: Iterable[Item], size: int, seed: int) -> tuple[list[Item], int]:
    """Draw a uniform sample in one pass.

    Returns the sample in its original order, and the number of items seen.
    """
    reservoir = Reservoir[Item](size, seed)
    for item in items:
        reservoir.add(item)
    return reservoir.items, reservoir.num_seen
