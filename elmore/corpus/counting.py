"""A block of text to numbers: its sentences, their words, and each word's number in the block."""

from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt32

from elmore.corpus.blocks import Block, Run
from elmore.corpus.options import Options
from elmore.text import tokenizers
from elmore.text.sentences import split


class Counted(NamedTuple):
    """What a block holds. Number 0 is the boundary before each sentence, number n is word n - 1."""

    words: list[str]
    counts: Int64[np.ndarray, " words+1"]
    """How often each occurs in the training text."""
    train: UInt32[np.ndarray, " N"]
    valid: UInt32[np.ndarray, " M"]


def count(block: Block, options: Options) -> Counted:
    """Number the words of a block as they come."""
    numbers: defaultdict[str | None, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    number = numbers.__getitem__
    boundary = number(None)  # what no text can hold
    streams = {"train": array("I"), "valid": array("I")}
    for run in block.runs:
        stream = streams[run.split]
        for words in sentences(run, options):
            stream.append(boundary)
            stream.extend(map(number, words))
    train, valid = (np.array(stream, np.uint32) for stream in streams.values())
    numbers.default_factory = None  # it holds its own dict: a circle that would linger
    counts = np.bincount(train, minlength=len(numbers))
    return Counted([word for word in numbers if word is not None], counts, train, valid)


def sentences(run: Run, options: Options) -> Iterator[list[str]]:
    """Give the words of each sentence; no sentence is empty."""
    text = run.text.decode("utf-8")
    if run.tokenized:
        return filter(None, map(str.split, text.split("\n")))
    paragraphs = [text] if options.wrapped else text.split("\n")
    return (
        tokenizers.PENN.findall(paragraph[start:end])
        for paragraph in paragraphs
        for start, end in split(paragraph, options.language)
    )
