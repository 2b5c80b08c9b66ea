"""Tokenise texts, and split them into the segments that run on their own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from elmore.errors import DataError
from elmore.text import sentences
from elmore.text.characters import check_tokens
from elmore.text.tokenizers import Tokenizer, tokenize

Text = str | Sequence[str]
"""A raw string, or a list of tokens."""


class TokenizedText(NamedTuple):
    """The words of a text, and their offsets if the text was a string."""

    words: list[str]
    """A list that was given is not copied."""
    lengths: tuple[int, ...]
    """The number of words of each segment."""
    offsets: list[tuple[int, int]] | None

    @property
    def segments(self) -> list[list[str]]:
        """The words of each segment."""
        bounds = accumulate(self.lengths, initial=0)
        return [self.words[begin:end] for begin, end in pairwise(bounds)]

    @property
    def num_tokens(self) -> int:
        """Number of tokens, boundary tokens included."""
        return len(self.words) + 2 * len(self.lengths)


def tokenize_texts(
    texts: Iterable[Text], tokenizer: Tokenizer, *, split_sentences: bool
) -> Iterator[TokenizedText]:
    """Return an iterator over tokenised texts, or raise DataError if `texts` is one string."""
    if isinstance(texts, str):
        raise DataError(f"a list of texts is expected; pass [{texts[:30]!r}] for one")
    return (tokenize_text(text, tokenizer, split_sentences=split_sentences) for text in texts)


def tokenize_text(
    text: Text, tokenizer: Tokenizer, *, split_sentences: bool = False
) -> TokenizedText:
    """Tokenise a string, or check a list of tokens.

    A string is one segment, or with `split_sentences` one for each of its sentences.
    """
    if isinstance(text, str):
        spans = sentences.split_sentences(text) if split_sentences else [(0, len(text))]
        tokenized = [tokenize(text[start:end], tokenizer) for start, end in spans]
        offsets = [
            (start + left, start + right)
            for (start, _), sentence in zip(spans, tokenized, strict=True)
            for left, right in sentence.offsets
        ]
        words = list(chain.from_iterable(sentence.words for sentence in tokenized))
        lengths = tuple(len(sentence.words) for sentence in tokenized)
        complete = len(offsets) == len(words)  # a tokenizer that rewrites has none
        return TokenizedText(words, lengths, offsets if complete else None)
    if not isinstance(text, list) and not _is_tokens(text):
        raise DataError(f"expected a string or a list of tokens, found {str(text)[:40]!r}")
    words = text if isinstance(text, list) else list(text)
    check_tokens(words)
    return TokenizedText(words, (len(words),), None)


def _is_tokens(text: object) -> bool:
    return isinstance(text, Iterable) and not isinstance(text, bytes | Mapping)
