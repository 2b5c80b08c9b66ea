"""Convert between character offsets and tokens.

A span of tokens includes its last token; a range of characters excludes its end, as slices do.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from elmore.errors import DataError
from elmore.text.sentences import split_sentences
from elmore.text.tokenizers import Tokenizer, penn, tokenize


@dataclass(frozen=True)
class TextWithOffsets:
    """A text, its tokens, and their character offsets."""

    text: str
    words: list[str]
    starts: list[int]
    ends: list[int]

    @cached_property
    def sentences(self) -> list[list[str]]:
        """The tokens of each sentence; a token belongs to the sentence in which it starts."""
        cuts = [bisect_left(self.starts, start) for start, _ in split_sentences(self.text)[1:]]
        bounds = pairwise([0, *cuts, len(self.words)])
        return [self.words[first:after] for first, after in bounds if first < after]

    def tokens(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of tokens that covers a range of characters, not all whitespace."""
        first = bisect_right(self.ends, start)  # the first that ends behind the start
        last = bisect_left(self.starts, end) - 1
        return first, last

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of characters of a span."""
        return self.starts[first], self.ends[last]

    def cut(self, first: int, last: int) -> str:
        """Return the text of a span, as it is written."""
        start, end = self.characters(first, last)
        return self.text[start:end]


def tokenize_with_offsets(text: str, tokenizer: Tokenizer = penn) -> TextWithOffsets:
    """Tokenize a text; a tokenizer that rewrites words is refused, because it loses offsets."""
    words, offsets = tokenize(text, tokenizer)
    if len(offsets) != len(words):
        raise DataError(
            f"the tokenizer rewrote words of {text[:40]!r}, expected words of the text itself: an "
            "answer is a span of it"
        )
    return TextWithOffsets(
        text, words, [start for start, _ in offsets], [end for _, end in offsets]
    )
