"""Words as they are written, between spaces, and the tokens that each of them has.

Readers see "owners." and "won't"; a language model reads "owners", "." and "wo", "n't". A token has
no whitespace inside, so it belongs to the word in which it starts.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from elmore.text.sentences import split_sentences
from elmore.text.tokenizers import Tokens, penn, whitespace


class WrittenWord(NamedTuple):
    """A word of a text: `text[start:end]`."""

    start: int
    end: int
    sentence: int
    """Number of its sentence in the text, from 0."""
    tokens: range
    """Positions of its tokens; empty if the word is."""


class WrittenText(NamedTuple):
    """A text with its sentences, words and tokens."""

    text: str
    tokens: list[str]
    sentences: list[range]
    """Positions of the tokens of each sentence."""
    words: list[WrittenWord]


def split_text(
    text: str, *, tokenizer: Callable[[str], Tokens] = penn, language: str = "en"
) -> WrittenText:
    """Split a text into sentences, words at its spaces, and tokens."""
    return _split(text, whitespace(text).offsets, tokenizer, language)


def join_words(
    words: Sequence[str], *, tokenizer: Callable[[str], Tokens] = penn, language: str = "en"
) -> WrittenText:
    """Make a text of words, with spaces between them.

    They stay as they are given: a word may have spaces inside, as a region of an experiment may,
    or be empty.
    """
    spans, end = [], -1
    for word in words:
        start = end + 1 if word else max(end, 0)
        end = start + len(word) if word else end
        spans.append((start, start + len(word)))
    return _split(" ".join(filter(None, words)), spans, tokenizer, language)


def _split(
    text: str,
    spans: Sequence[tuple[int, int]],
    tokenizer: Callable[[str], Tokens],
    language: str,
) -> WrittenText:
    tokens: list[str] = []
    starts: list[int] = []
    sentences: list[range] = []
    for first, last in split_sentences(text, language):
        found = tokenizer(text[first:last])
        sentences.append(range(len(tokens), len(tokens) + len(found.words)))
        tokens += found.words
        starts += [first + start for start, _ in found.offsets]
    begins = [sentence.start for sentence in sentences]
    words = []
    for start, end in spans:
        own = range(bisect_left(starts, start), bisect_left(starts, end))
        number = max(0, bisect_right(begins, own.start) - 1)
        words.append(WrittenWord(start, end, number, own))
    return WrittenText(text, tokens, sentences, words)
