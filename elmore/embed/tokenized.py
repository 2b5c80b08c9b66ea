"""Texts made ready to run: tokenised, split into what runs on its own, and held in windows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from elmore.errors import DataError
from elmore.text import sentences
from elmore.text.characters import check_tokens
from elmore.text.tokenizers import Tokenizer, tokenize

Text = str | Sequence[str]
"""A raw string, or a list of tokens."""


class TokenizedText(NamedTuple):
    """A text as the tokens of each part that runs on its own; its offsets, if it was a string."""

    segments: list[list[str]]
    offsets: list[tuple[int, int]] | None

    @property
    def num_tokens(self) -> int:
        """How many tokens the model reads, boundaries included."""
        return sum(map(len, self.segments)) + 2 * len(self.segments)


def tokenize_text(
    text: Text, tokenizer: Tokenizer, *, split_sentences: bool = False
) -> TokenizedText:
    """Tokenise a string, or take tokens as they are."""
    if isinstance(text, str):
        spans = sentences.split(text) if split_sentences else [(0, len(text))]
        found = [tokenize(text[start:end], tokenizer) for start, end in spans]
        offsets = [
            (start + left, start + right)
            for (start, _), part in zip(spans, found, strict=True)
            for left, right in part.offsets
        ]
        parts = [part.words for part in found]
        placed = len(offsets) == sum(map(len, parts))  # a tokenizer that rewrites has no offsets
        return TokenizedText(parts, offsets if placed else None)
    if not isinstance(text, list) and not _is_tokens(text):
        raise DataError(f"expected a string or a list of tokens, found {str(text)[:40]!r}")
    words = list(text)
    check_tokens(words)
    return TokenizedText([words], None)


def _is_tokens(text: object) -> bool:
    return isinstance(text, Iterable) and not isinstance(text, bytes | Mapping)


def num_padded(texts: Sequence[TokenizedText]) -> int:
    """Say how many tokens one batch of them would have, padding included."""
    lengths = [len(part) + 2 for text in texts for part in text.segments]
    return len(lengths) * max(lengths, default=0)


def windows(texts: Iterable[TokenizedText], budget: int) -> Iterator[list[TokenizedText]]:
    """Hold texts until the next would go beyond the budget of tokens.

    The last two share what is left: a window that is nearly empty would cost as much as a full one.
    """
    before: list[TokenizedText] = []
    window: list[TokenizedText] = []
    held = 0
    for text in texts:
        size = text.num_tokens
        if window and (held + size > budget or len(window) >= budget):
            if before:
                yield before
            before, window, held = window, [], 0
        window.append(text)
        held += size
    if before:
        cut = _even_cut([text.num_tokens for text in before], held)
        yield before[:cut]
        window = [*before[cut:], *window]
    yield window


def _even_cut(sizes: Sequence[int], after: int) -> int:
    """Say how many stay when the last ones join those after, as long as these are the smaller."""
    cut, left = len(sizes), sum(sizes)
    while cut > 1 and after + sizes[cut - 1] <= left - sizes[cut - 1]:
        cut -= 1
        after, left = after + sizes[cut], left - sizes[cut]
    return cut
