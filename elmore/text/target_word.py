r"""Sentences with target words in [brackets]: the [play] was sold out.

`parse_target` requires exactly one target; there a backslash before [, ] or \ stands for the
character itself. `parse_targets` accepts any text, with or without targets.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from elmore.errors import DataError
from elmore.text.tokenizers import Tokenizer, penn, tokenize

_TARGET = re.compile(r"\[([^\s\[\]]+)\]")
_BRACKET = re.compile(r"\\([\[\]\\])|([\[\]])")
_MAX_SHOWN = 80  # characters of a sentence in an error message
_EXAMPLE = "mark one word, as in 'the [play] was sold out'"


class WordInContext(NamedTuple):
    """A word in its sentence."""

    tokens: list[str]
    position: int


def parse_target(text: str, tokenizer: Tokenizer = penn) -> WordInContext:
    """Tokenize a sentence with one word in brackets, and return that word's position.

    Raises:
        DataError: Not exactly one token is in brackets.
    """
    plain, start, end = _strip_brackets(text)
    words, offsets = tokenize(plain, tokenizer)
    if len(words) != len(offsets):
        raise DataError(
            f"{_quoted(text)}: the tokenizer changed the words, so the marked word cannot be found "
            "among them"
        )
    while start < end and plain[start].isspace():
        start += 1
    while start < end and plain[end - 1].isspace():
        end -= 1
    inside = [i for i, (left, right) in enumerate(offsets) if left < end and start < right]
    if not inside:
        raise DataError(f"{_quoted(text)}: there is no word between the brackets; {_EXAMPLE}")
    if len(inside) > 1:
        marked = _quoted(" ".join(words[i] for i in inside))
        raise DataError(f"{_quoted(text)}: {marked} is {len(inside)} tokens, not one; {_EXAMPLE}")
    if offsets[inside[0]] != (start, end):
        raise DataError(
            f"{_quoted(text)}: {_quoted(plain[start:end])} is only a part of the token "
            f"{_quoted(words[inside[0]])}; mark the whole token"
        )
    return WordInContext(list(words), inside[0])


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


def _strip_brackets(text: str) -> tuple[str, int, int]:
    """Return the text without its brackets, and the span that was between them."""
    pieces: list[str] = []
    length = done = 0
    brackets: list[tuple[str, int]] = []
    for match in _BRACKET.finditer(text):
        piece = text[done : match.start()] + (match[1] or "")
        pieces.append(piece)
        length, done = length + len(piece), match.end()
        if match[2]:
            brackets.append((match[2], length))
    pieces.append(text[done:])
    if not brackets:
        raise DataError(f"{_quoted(text)}: no word is marked; {_EXAMPLE}")
    kinds = "".join(kind for kind, _ in brackets)
    if kinds != "[]":
        has_several = kinds == "[]" * (len(kinds) // 2)
        problem = (
            f"{len(kinds) // 2} words are marked" if has_several else "the brackets do not match"
        )
        raise DataError(
            rf"{_quoted(text)}: {problem}; {_EXAMPLE}, and write \[ for a literal bracket"
        )
    return "".join(pieces), brackets[0][1], brackets[1][1]


def format_target(tokens: Sequence[str], position: int) -> str:
    """Return tokens as a sentence that `parse_target` reads, separated by spaces."""
    escaped = [re.sub(r"([\[\]\\])", r"\\\1", token) for token in tokens]
    escaped[position] = f"[{escaped[position]}]"
    return " ".join(escaped)


class TargetWords(NamedTuple):
    """The words of a text without brackets, and the positions of those that were in brackets."""

    words: list[str]
    positions: list[int]


def parse_targets(text: str, tokenizer: Tokenizer) -> TargetWords:
    """Tokenize a text without its brackets, and return the positions of the words in brackets.

    Brackets around several words, or around none, are part of the text.
    """
    spans, shift = [], 0
    for target in _TARGET.finditer(text):
        spans.append((target.start() - shift, target.end() - shift - 2))
        shift += 2
    words, offsets = tokenize(_TARGET.sub(r"\1", text), tokenizer)
    positions = [
        i
        for i, (left, right) in enumerate(offsets)
        if any(left < end and start < right for start, end in spans)
    ]
    return TargetWords(words, positions)
