"""Words in [brackets]: those that are meant.

    the [play] was sold out

`use` reads a sentence in which exactly one word is marked; there a backslash before [, ] or another
backslash takes it for the character itself. `read` takes any text, marked or not.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from elmore.errors import DataError
from elmore.text.tokenizers import Tokenizer, penn, tokenize

_MARK = re.compile(r"\[([^\s\[\]]+)\]")
_MARKS = re.compile(r"\\([\[\]\\])|([\[\]])")
_SHOWN = 80  # characters of a sentence, in what is said about it
_EXAMPLE = "mark one word, as in 'the [play] was sold out'"


class Use(NamedTuple):
    """A word in its sentence."""

    tokens: list[str]
    position: int


def use(text: str, tokenizer: Tokenizer = penn) -> Use:
    """Read a sentence with one word in brackets, tokenised as the rest of a text would be."""
    plain, start, end = _without_marks(text)
    words, offsets = tokenize(plain, tokenizer)
    if len(words) != len(offsets):
        raise DataError(
            f"{_quoted(text)}: the tokenizer rewrote the words, so the marked one has no place "
            "among them"
        )
    while start < end and plain[start].isspace():
        start += 1
    while start < end and plain[end - 1].isspace():
        end -= 1
    inside = [at for at, (left, right) in enumerate(offsets) if left < end and start < right]
    if not inside:
        raise DataError(f"{_quoted(text)}: there is no word between the brackets; {_EXAMPLE}")
    if len(inside) > 1:
        found = _quoted(" ".join(words[at] for at in inside))
        raise DataError(f"{_quoted(text)}: {found} is {len(inside)} tokens and not one; {_EXAMPLE}")
    if offsets[inside[0]] != (start, end):
        raise DataError(
            f"{_quoted(text)}: {_quoted(plain[start:end])} is a part of the token "
            f"{_quoted(words[inside[0]])}; mark all of it"
        )
    return Use(list(words), inside[0])


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _without_marks(text: str) -> tuple[str, int, int]:
    """Take the brackets out, and say which stretch they held."""
    pieces: list[str] = []
    length = done = 0
    places: list[tuple[str, int]] = []
    for match in _MARKS.finditer(text):
        piece = text[done : match.start()] + (match[1] or "")
        pieces.append(piece)
        length, done = length + len(piece), match.end()
        if match[2]:
            places.append((match[2], length))
    pieces.append(text[done:])
    if not places:
        raise DataError(f"{_quoted(text)}: no word is marked; {_EXAMPLE}")
    kinds = "".join(kind for kind, _ in places)
    if kinds != "[]":
        several = kinds.count("[") > 1 and kinds == "[]" * kinds.count("[")
        found = f"{kinds.count('[')} words are marked" if several else "the brackets do not pair"
        raise DataError(rf"{_quoted(text)}: {found}; {_EXAMPLE}, and write \[ for a bracket itself")
    return "".join(pieces), places[0][1], places[1][1]


def shown(tokens: Sequence[str], position: int) -> str:
    """Write a use so that `use` reads it again, its tokens between spaces."""
    plain = [re.sub(r"([\[\]\\])", r"\\\1", token) for token in tokens]
    plain[position] = f"[{plain[position]}]"
    return " ".join(plain)


class Marked(NamedTuple):
    """The words of a text without the brackets, and which of them stood in brackets."""

    words: list[str]
    places: list[int]


def read(text: str, tokenizer: Tokenizer) -> Marked:
    """Take the brackets away, tokenise what is left, and find the words again.

    Brackets around several words, or around none, are part of the text.
    """
    spans, shift = [], 0
    for mark in _MARK.finditer(text):
        spans.append((mark.start() - shift, mark.end() - shift - 2))
        shift += 2
    found = tokenize(_MARK.sub(r"\1", text), tokenizer)
    places = [
        place
        for place, (left, right) in enumerate(found.offsets)
        if any(left < end and start < right for start, end in spans)
    ]
    return Marked(found.words, places)
