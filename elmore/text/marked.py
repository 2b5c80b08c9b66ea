"""Text with a word in [brackets]: the word that is meant."""

import re
from typing import NamedTuple

from elmore.text.tokenizers import Tokenizer, tokenize

_MARK = re.compile(r"\[([^\s\[\]]+)\]")


class Marked(NamedTuple):
    """The words of a text without the brackets, and which of them stood in brackets."""

    words: list[str]
    places: list[int]


def read(text: str, tokenizer: Tokenizer) -> Marked:
    """Take the brackets away, tokenise what is left, and find the words again.

    Brackets around several words, or around none, are part of the text.
    """
    spans, shift = [], 0
    for mark in _MARK.finditer(text):
        spans.append((mark.start() - shift, mark.end() - shift - 2))
        shift += 2
    found = tokenize(_MARK.sub(r"\1", text), tokenizer)
    places = [
        place
        for place, (left, right) in enumerate(found.offsets)
        if any(left < end and start < right for start, end in spans)
    ]
    return Marked(found.words, places)
