"""Tokenise the texts of a request, within the limits."""

import asyncio
from collections.abc import Sequence

from fastapi import HTTPException

from elmore.embed.tokenized import tokenize_text
from elmore.errors import ElmoreError
from elmore.serve.schemas import MAX_TOKENS
from elmore.text.tokenizers import Tokenizer

_SHORT = 10_000  # characters that are tokenised at once; more in a thread


async def tokenize_texts(
    texts: Sequence[str | list[str]], tokenizer: Tokenizer, most: int
) -> list[list[str]]:
    """Return the tokens of each text; raise HTTPException (413, 422) for what is not allowed."""
    if sum(len(text) for text in texts if isinstance(text, str)) > _SHORT:
        tokens = await asyncio.to_thread(_tokens, texts, tokenizer)
    else:
        tokens = _tokens(texts, tokenizer)
    for number, words in enumerate(tokens):
        if len(words) > MAX_TOKENS:
            raise HTTPException(
                413,
                f"texts.{number}: {len(words)} tokens, a text may have {MAX_TOKENS}; split it into "
                "sentences",
            )
    total = sum(map(len, tokens))
    if total > most:
        raise HTTPException(
            413,
            f"texts: {total} tokens, a request may have {most}; send them in several requests",
        )
    return tokens


def _tokens(texts: Sequence[str | list[str]], tokenizer: Tokenizer) -> list[list[str]]:
    try:
        return [
            [word for segment in tokenize_text(text, tokenizer).segments for word in segment]
            for text in texts
        ]
    except ElmoreError as error:
        raise HTTPException(422, f"texts: {error}") from error
