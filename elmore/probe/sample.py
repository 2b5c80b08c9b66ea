"""Text for a probe: tokenized sentences, and a random sample of them in bounded memory."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

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


def reservoir_sample(items: Iterable[Item], size: int, seed: int) -> tuple[list[Item], int]:
    """Draw a uniform sample in one pass (Vitter, 1985, algorithm R).

    Returns the sample in its original order, and the number of items seen.
    """
    if size < 1:
        raise ConfigError(f"the sample size must be at least 1, found {size}")
    generator = np.random.default_rng(seed)
    reservoir: list[tuple[int, Item]] = []
    total = 0
    for position, item in enumerate(items):
        total = position + 1
        if len(reservoir) < size:
            reservoir.append((position, item))
        elif (replaced := int(generator.integers(total))) < size:
            reservoir[replaced] = (position, item)
    return [item for _, item in sorted(reservoir, key=lambda pair: pair[0])], total
