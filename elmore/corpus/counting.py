"""Tokenize a block of text, and number its words."""

from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt32

from elmore.corpus.blocks import Block, LineRun
from elmore.corpus.options import PrepareOptions
from elmore.text import tokenizers
from elmore.text.sentences import split_sentences


class CountedBlock(NamedTuple):
    """The words of a block. Number 0 is the boundary before each sentence, n is word n - 1."""

    words: list[str]
    counts: Int64[np.ndarray, " words+1"]
    """Counts in the training text."""
    train: UInt32[np.ndarray, " N"]
    valid: UInt32[np.ndarray, " M"]


def count_block(block: Block, options: PrepareOptions) -> CountedBlock:
    """Assign ids to the words of a block in order of appearance, and count them."""
    numbers: defaultdict[str | None, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    number = numbers.__getitem__
    boundary = number(None)  # no word of a text is None
    streams = {"train": array("I"), "valid": array("I")}
    for run in block.runs:
        stream = streams[run.split]
        for words in tokenize_sentences(run, options):
            stream.append(boundary)
            stream.extend(map(number, words))
    train, valid = (np.array(stream, np.uint32) for stream in streams.values())
    numbers.default_factory = None  # break the reference cycle with its own dict
    counts = np.bincount(train, minlength=len(numbers))
    return CountedBlock([word for word in numbers if word is not None], counts, train, valid)


def tokenize_sentences(run: LineRun, options: PrepareOptions) -> Iterator[list[str]]:
    """Yield the words of each sentence; no sentence is empty."""
    text = run.text.decode("utf-8")
    if run.tokenized:
        return filter(None, map(str.split, text.split("\n")))
    paragraphs = [text] if options.hard_wrapped else text.split("\n")
    return (
        tokenizers.PENN.findall(paragraph[start:end])
        for paragraph in paragraphs
        for start, end in split_sentences(paragraph, options.language or "en")
    )
