import asyncio

import pytest
from fastapi import HTTPException

from elmore.serve.texts import tokenize_texts


def test_an_error_of_the_tokenizer_is_returned_to_its_request():
    with pytest.raises(HTTPException) as refused:
        asyncio.run(tokenize_texts(["a b"], lambda text: text, 10))
    assert refused.value.status_code == 422
    assert "texts: the tokenizer returned 'a b', expected a list of words" in refused.value.detail


def test_texts_after_the_first_over_a_limit_are_not_tokenised():
    seen = []

    def tokenizer(text):
        seen.append(text)
        return text.split()

    for texts, said in (
        (["a b", "c d", "e"], "texts: 4 tokens in the first 2 texts, a request may have 3"),
        (["a b c d e", "f"], "texts: 5 tokens, a request may have 3; send them in several req"),
        (["a " * 2049, "b"], "texts.0: 2049 tokens, a text may have 2048"),
    ):
        seen.clear()
        with pytest.raises(HTTPException) as refused:
            asyncio.run(tokenize_texts(texts, tokenizer, 3))
        assert refused.value.status_code == 413
        assert said in refused.value.detail
        assert seen == texts[:-1]
