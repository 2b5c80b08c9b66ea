"""Tokenise texts, and split them into the segments that run on their own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from elmore.errors import DataError
from elmore.text import sentences
from elmore.text.characters import check_tokens
from elmore.text.tokenizers import Tokenizer, tokenize

Text = str | Sequence[str]
"""A raw string, or a list of tokens."""


class TokenizedText(NamedTuple):
    """The tokens of each segment of a text, and their offsets if the text was a string."""

    segments: list[list[str]]
    offsets: list[tuple[int, int]] | None

    @property
    def num_tokens(self) -> int:
        """Number of tokens, boundary tokens included."""
        return sum(map(len, self.segments)) + 2 * len(self.segments)


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
        segments = [sentence.words for sentence in tokenized]
        complete = len(offsets) == sum(map(len, segments))  # a tokenizer that rewrites has none
        return TokenizedText(segments, offsets if complete else None)
    if not isinstance(text, list) and not _is_tokens(text):
        raise DataError(f"expected a string or a list of tokens, found {str(text)[:40]!r}")
    words = list(text)
    check_tokens(words)
    return TokenizedText([words], None)


def _is_tokens(text: object) -> bool:
    return isinstance(text, Iterable) and not isinstance(text, bytes | Mapping)
