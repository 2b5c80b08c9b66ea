"""Column files: one token per line with its fields, and a blank line after each sentence."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmore.text.files import expand_patterns, numbered_lines

Block = list[tuple[str, str]]
"""Lines up to a blank one, each with its position `file:line` for messages."""


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with one tag per token."""

    tokens: list[str]
    tags: list[str]


def read_blocks(path: str | Path, *, encoding: str = "utf-8") -> Iterator[Block]:
    """Yield the blocks of a file, or of all files that a pattern matches."""
    for name in expand_patterns([str(path)]):
        yield from split_blocks(numbered_lines(name, encoding=encoding))


def split_blocks(lines: Iterable[tuple[str, str]]) -> Iterator[Block]:
    """Group lines, each with its position, into blocks.

    A line of spaces and tabs is blank: some files end their sentences with these.
    """
    block: Block = []
    for position, line in lines:
        if line.strip(" \t"):
            block.append((position, line))
        elif block:
            yield block
            block = []
    if block:  # the last sentence of a file may lack its blank line
        yield block


def pair_tags(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the gold and the predicted tags of each sentence, which must be equally many."""
    for number, (gold_tags, predicted_tags) in enumerate(zip(gold, predicted, strict=True)):
        if len(gold_tags) != len(predicted_tags):
            raise ValueError(
                f"sentence {number} has {len(gold_tags)} tags and {len(predicted_tags)} predicted"
            )
        yield gold_tags, predicted_tags
