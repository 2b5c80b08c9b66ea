"""Tokenise the texts of a request, within the limits."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from elmore.embed.tokenized import tokenize_text
from elmore.errors import ElmoreError
from elmore.serve.errors import RequestError
from elmore.serve.schemas import MAX_TOKENS
from elmore.text.tokenizers import Tokenizer

_SHORT = 10_000  # characters that are tokenised at once; more in a thread

Offsets = list[tuple[int, int]]
"""Start and end of each token in its text, in characters (code points)."""


class TokenizedTexts(NamedTuple):
    """The tokens of each text, and their offsets: None for a text that was a list of tokens."""

    words: list[list[str]]
    offsets: list[Offsets | None]

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all texts."""
        return sum(map(len, self.words))


async def tokenize_texts(
    texts: Sequence[str | list[str]], tokenizer: Tokenizer, most: int, *, field: str = "texts"
) -> TokenizedTexts:
    """Tokenise each text; `field` is where the request has them.

    Raises:
        RequestError: There are too many tokens (413), or a text cannot be tokenised (422).
    """
    if sum(len(text) for text in texts if isinstance(text, str)) > _SHORT:
        tokenized = await asyncio.to_thread(_tokenize, texts, tokenizer, most, field)
    else:
        tokenized = _tokenize(texts, tokenizer, most, field)
    return tokenized


def _tokenize(
    texts: Sequence[str | list[str]], tokenizer: Tokenizer, most: int, field: str
) -> TokenizedTexts:
    """Tokenise each text up to the first that is over a limit: a refusal must not cost much."""
    tokenized = TokenizedTexts([], [])
    num_tokens = 0
    for number, text in enumerate(texts):
        try:
            result = tokenize_text(text, tokenizer)
        except ElmoreError as error:
            raise RequestError(422, f"{field}: {error}", param=field) from error
        words = list(result.words)
        num_tokens += len(words)
        if len(words) > MAX_TOKENS:
            raise RequestError(
                413,
                f"{field}.{number}: {len(words)} tokens, a text may have {MAX_TOKENS}; split it "
                "into sentences",
                param=field,
            )
        if num_tokens > most:
            where = f" in the first {number + 1} texts" if number else ""
            raise RequestError(
                413,
                f"{field}: {num_tokens} tokens{where}, a request may have {most}; send them in "
                "several requests",
                param=field,
            )
        tokenized.words.append(words)
        tokenized.offsets.append(result.offsets)
    return tokenized
