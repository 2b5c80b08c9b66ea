"""Characters to tokens and back.

A span of tokens goes from its first token to its last, that one included; a stretch of characters
from its start to its end, as slices do.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from elmore.errors import DataError
from elmore.text.tokenizers import Tokenizer, penn, tokenize


@dataclass(frozen=True)
class TextWithOffsets:
    """A text, its words, and where in the text each is."""

    text: str
    words: list[str]
    starts: list[int]
    ends: list[int]

    def tokens(self, start: int, end: int) -> tuple[int, int]:
        """Return the span that holds the characters; those are not all whitespace."""
        first = bisect_right(self.ends, start)  # the first that ends behind the start
        last = bisect_left(self.starts, end) - 1
        return first, last

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Return the stretch from the first token's start to the last one's end."""
        return self.starts[first], self.ends[last]

    def cut(self, first: int, last: int) -> str:
        """Return the text of a span, just as it is written."""
        start, end = self.characters(first, last)
        return self.text[start:end]


def place(text: str, tokenizer: Tokenizer = penn) -> TextWithOffsets:
    """Tokenize a text; words that a tokenizer rewrote are refused, for they have no place in it."""
    words, offsets = tokenize(text, tokenizer)
    if len(offsets) != len(words):
        raise DataError(
            f"the tokenizer rewrote words of {text[:40]!r}, expected words of the text itself: an "
            "answer is a stretch of it"
        )
    return TextWithOffsets(
        text, words, [start for start, _ in offsets], [end for _, end in offsets]
    )
