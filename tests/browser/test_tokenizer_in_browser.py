"""The tokenizer and the alphabet in JavaScript: the same words and bytes as in Python."""

import random
import unicodedata

import pytest

from elmore.text.characters import ByteAlphabet
from elmore.text.tokenizers import penn
from tests.support.real_browser import open_without_model
from tests.support.static_server import serve_folder
from tests.support.sweeps import pick
from tests.text.test_tokenizers import GOLDEN

TOKENIZE = "texts => import('./tokenizer.js').then(({tokenize}) => texts.map(tokenize))"
ENCODE = """([words, width]) => import('./alphabet.js')
    .then(({encodeWord}) => words.map(word => encodeWord(word, width)))"""
NUM_TEXTS = pick(2_000, 20_000)  # of each kind

EXAMPLES = [text for rows in GOLDEN.values() for text, _ in rows]
MARKS = "abcSsTtNnIiMm'’.,-_@#/:()\"“”0123456789  \t\n\x1c\x85\ufeff\u00ad\u200b\u200d\ufe0f\u20e3"
MARKS += "ſéßΑя中あアไก한🙂👩🏽🇩🇪©\u0301\u0903"
LIGATURES = ["see ﬁg. 5", "ﬁgs. 5 and 6", "eﬆ. 1850", "eﬅ. 1850", "the ﬁrst. 5"]
GLUE = ["", " ", ".", ", ", "'s", "n't", "-"]


def texts() -> list[str]:
    """Return the examples of the tokenizer, and random mixtures of them, of marks, of all."""
    draw = random.Random(0)
    pieces = [piece for text in EXAMPLES for piece in text.split(" ")]
    known = [
        character
        for character in map(chr, range(0x110000))
        if unicodedata.category(character) not in ("Cs", "Cn")  # as old as Python's own tables
    ]
    result = [*EXAMPLES, *LIGATURES]
    for _ in range(NUM_TEXTS):
        result.append("".join(draw.choices(MARKS, k=draw.randint(1, 25))))
        some = draw.choices(pieces, k=draw.randint(1, 8))
        result.append("".join(piece + draw.choice(GLUE) for piece in some))
        some = draw.choices(known, k=6) + draw.choices(MARKS, k=4)
        result.append("".join(draw.sample(some, draw.randint(1, 10))))
    return result


@pytest.fixture(scope="module")
def page(browser, site):
    with serve_folder(site) as url, open_without_model(browser, url) as result:
        yield result


def test_words_are_those_of_python(page):
    all_texts = texts()
    assert len(all_texts) > 6_000
    found = page.evaluate(TOKENIZE, all_texts)
    for text, words in zip(all_texts, found, strict=True):
        assert words == penn(text).words, ascii(text)


def test_bytes_are_those_of_python(page):
    alphabet = ByteAlphabet()
    words = ["<S>", "</S>", "", "x" * 47, "x" * 48, "é" * 24, "é" * 25, "日" * 30, "👩🏽" * 9]
    words += [word for text in texts()[:500] for word in penn(text).words]
    found = page.evaluate(ENCODE, [words, alphabet.max_characters])
    assert found == [alphabet.encode_word(word) for word in words]
