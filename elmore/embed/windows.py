"""Split a stream of texts into windows: the texts that are held, and run, at the same time."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from elmore.embed.tokenized import TokenizedText


class Window(NamedTuple):
    """Texts that follow each other, as columns.

    A list or a tuple for each text would keep the garbage collector of Python busy.
    """

    words: list[str]
    """Of all texts."""
    lengths: list[int]
    """The number of words of each segment."""
    num_words: list[int]
    """Of each text."""
    num_segments: list[int]
    """Of each text."""
    offsets: list[list[tuple[int, int]] | None]
    """Of each text."""

    @classmethod
    def empty(cls) -> Self:
        """Return a window without texts."""
        return cls([], [], [], [], [])

    def append(self, text: TokenizedText) -> None:
        """Add a text at the end."""
        self.words.extend(text.words)
        self.lengths.extend(text.lengths)
        self.num_words.append(len(text.words))
        self.num_segments.append(len(text.lengths))
        self.offsets.append(text.offsets)

    def extend(self, other: "Window") -> None:
        """Add the texts of another window at the end."""
        self.words.extend(other.words)
        self.lengths.extend(other.lengths)
        self.num_words.extend(other.num_words)
        self.num_segments.extend(other.num_segments)
        self.offsets.extend(other.offsets)

    def cut(self, num_texts: int) -> "Window":
        """Remove all but the first texts, and return them."""
        word, segment = sum(self.num_words[:num_texts]), sum(self.num_segments[:num_texts])
        removed = Window(
            self.words[word:],
            self.lengths[segment:],
            self.num_words[num_texts:],
            self.num_segments[num_texts:],
            self.offsets[num_texts:],
        )
        del self.words[word:], self.lengths[segment:], self.num_words[num_texts:]
        del self.num_segments[num_texts:], self.offsets[num_texts:]
        return removed

    def texts(self) -> Iterator[TokenizedText]:
        """Yield the texts, each with a list of its own."""
        word = segment = 0
        columns = zip(self.num_words, self.num_segments, self.offsets, strict=True)
        for num_words, num_segments, offsets in columns:
            words = self.words[word : word + num_words]
            lengths = tuple(self.lengths[segment : segment + num_segments])
            yield TokenizedText(words, lengths, offsets)
            word += num_words
            segment += num_segments


def split_windows(texts: Iterable[TokenizedText], budget: int) -> Iterator[Window]:
    """Split a stream of texts into windows of at most `budget` tokens, or one longer text.

    The last two windows share what is left, because a window that is nearly empty takes almost as
    long as a full one.
    """
    before, window = Window.empty(), Window.empty()
    num_tokens = num_texts = 0
    for text in texts:
        size = text.num_tokens
        if num_texts and (num_tokens + size > budget or num_texts >= budget):
            if before.num_words:
                yield before
            before, window = window, Window.empty()
            num_tokens = num_texts = 0
        window.append(text)
        num_tokens += size
        num_texts += 1
    if before.num_words:
        pairs = zip(before.num_words, before.num_segments, strict=True)
        sizes = [words + 2 * segments for words, segments in pairs]
        moved = before.cut(_even_cut(sizes, num_tokens))
        yield before
        moved.extend(window)
        window = moved
    yield window


def _even_cut(sizes: Sequence[int], after: int) -> int:
    """Return how many texts stay, when the last ones move to a next window of size `after`."""
    cut, left = len(sizes), sum(sizes)
    while cut > 1 and after + sizes[cut - 1] <= left - sizes[cut - 1]:
        cut -= 1
        after, left = after + sizes[cut], left - sizes[cut]
    return cut
