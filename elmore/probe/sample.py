"""Text for a probe: sentences as tokens, and a fair draw of them in bounded memory."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from elmore.errors import ConfigError
from elmore.text import sentences as splitting
from elmore.text.tokenizers import penn, whitespace

Item = TypeVar("Item")


def tokenized(
    lines: Iterable[str | list[str]], *, ready: bool = False, split: bool = False
) -> Iterator[list[str]]:
    """Give the tokens of each line, or with `split` of each sentence; empty ones are left out.

    `ready` says that a line is split on spaces already; a list of tokens stays as it is.
    """
    cut = whitespace if ready else penn
    for line in lines:
        if not isinstance(line, str):
            found = [line]
        elif split:
            found = [cut(line[start:end]).words for start, end in splitting.split_sentences(line)]
        else:
            found = [cut(line).words]
        yield from (words for words in found if words)


def drawn(items: Iterable[Item], number: int, seed: int) -> tuple[list[Item], int]:
    """Draw so many, each with the same chance, and keep their order; say of how many they are."""
    if number < 1:
        raise ConfigError(f"at least 1 must be drawn, found {number}")
    chance = np.random.default_rng(seed)
    kept: list[tuple[int, Item]] = []
    total = 0
    for place, item in enumerate(items):
        total = place + 1
        if len(kept) < number:
            kept.append((place, item))
        elif (other := int(chance.integers(total))) < number:
            kept[other] = (place, item)
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])], total
