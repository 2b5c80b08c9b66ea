"""Sentences whose every token has a tag, and the column files they are kept in.

A column file has a token a line, its fields side by side, and a blank line after each sentence.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmore.text.files import expand, numbered


@dataclass(frozen=True)
class Tagged:
    """A sentence: as many tags as tokens."""

    tokens: list[str]
    tags: list[str]


def blocks(path: str | Path, *, encoding: str = "utf-8") -> Iterator[list[tuple[str, str]]]:
    """Give the lines of files between blank ones, each with its place, `file:line`."""
    for name in expand([str(path)]):
        yield from parted(numbered(name, encoding=encoding))


def parted(lines: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Give the lines between blank ones, each with its place, for messages.

    A line of nothing but blanks and tabs is blank: some files end their sentences with these.
    """
    block: list[tuple[str, str]] = []
    for place, line in lines:
        if line.strip(" \t"):
            block.append((place, line))
        elif block:
            yield block
            block = []
    if block:  # the last sentence of a file may lack its blank line
        yield block


def paired(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Give the true tags of each sentence beside as many predicted ones."""
    for place, (truth, guess) in enumerate(zip(gold, predicted, strict=True)):
        if len(truth) != len(guess):
            raise ValueError(f"sentence {place} has {len(truth)} tags and {len(guess)} predicted")
        yield truth, guess
