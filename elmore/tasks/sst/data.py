r"""The trees of the Stanford Sentiment Treebank, one per line.

    (3 (2 It) (4 (2 's) (4 lovely)))

Each phrase has a label from 0, very negative, to 4, very positive; the outermost is that of the
sentence. The treebank's escapes of brackets, slashes and stars (-LRB-, \/, \*) are undone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from elmore.errors import DataError
from elmore.tasks.classification import LabeledExample
from elmore.text.files import numbered_lines
from elmore.text.treebank import BRACKETS

FIVE = ("very negative", "negative", "neutral", "positive", "very positive")
TWO = ("negative", "positive")
CLASSES: dict[int, tuple[str, ...]] = {5: FIVE, 2: TWO}

_NAMES: dict[int, dict[str, str]] = {
    5: {str(number): name for number, name in enumerate(FIVE)},
    2: {"0": "negative", "1": "negative", "3": "positive", "4": "positive"},
}
_PIECES = re.compile(r"(?P<open>\()[ \t]*(?P<label>[^() \t]*)|(?P<close>\))|(?P<word>[^() \t]+)")


@dataclass(frozen=True)
class SentimentExample(LabeledExample):
    """A sentence and its labelled phrases."""

    tokens: list[str]
    phrases: tuple[tuple[int, int, str], ...] = ()
    """First token, the token after the last, label; without the whole sentence."""


def read_trees(path: str | Path, *, classes: Literal[5, 2] = 5) -> list[SentimentExample]:
    """Read the sentences of a file; with two classes, neutral ones are skipped."""
    names = _NAMES[classes]
    sentences, any_sentence = [], False
    for where, line in numbered_lines(path):
        if not line.strip(" \t"):
            continue
        any_sentence = True
        tokens, phrases = _parse_tree(where, line)
        named = [(first, after, names[x]) for first, after, x in phrases[:-1] if x in names]
        if phrases[-1][2] in names:
            sentences.append(SentimentExample(names[phrases[-1][2]], tokens, tuple(named)))
    if not sentences:
        content = "neutral sentences alone" if any_sentence else "no sentence"
        raise DataError(
            f"{path}: {content} found; expected a tree a line, as in (3 (2 It) (4 works))"
        )
    return sentences


def add_phrases(sentences: Sequence[SentimentExample]) -> list[SentimentExample]:
    """Return the sentences, then their phrases, single words included, without duplicates."""
    distinct = {(tuple(sentence.tokens), sentence.label): None for sentence in sentences}
    for sentence in sentences:
        for first, after, label in sentence.phrases:
            distinct[tuple(sentence.tokens[first:after]), label] = None
    return [SentimentExample(label, list(tokens)) for tokens, label in distinct]


def _parse_tree(where: str, line: str) -> tuple[list[str], list[tuple[int, int, str]]]:
    """Return the words and the phrases, the whole sentence last."""
    tokens: list[str] = []
    phrases: list[tuple[int, int, str]] = []
    open_phrases: list[tuple[int, str]] = []  # first token, label
    for piece in _PIECES.finditer(line):
        if not open_phrases and (phrases or not piece["open"]):
            _refuse_outside(where, line[piece.start() :], after=bool(phrases))
        if piece["open"]:
            if piece["label"] not in _NAMES[5]:
                raise DataError(
                    f"{where}: expected a label from 0 to 4 after a bracket, found "
                    f"{piece['label']!r}"
                )
            open_phrases.append((len(tokens), piece["label"]))
        elif piece["close"]:
            first, label = open_phrases.pop()
            if first == len(tokens):
                raise DataError(f"{where}: the phrase ({label}) has no words")
            phrases.append((first, len(tokens), label))
        else:
            tokens.append(piece["word"])
    if open_phrases:
        count = len(open_phrases)
        raise DataError(
            f"{where}: {count} bracket{'s' * (count > 1)} never closed; expected a whole tree on a "
            "line"
        )
    return [unescape_token(token) for token in tokens], phrases


def unescape_token(token: str) -> str:
    """Undo the treebank's escape of a bracket, a slash or a star."""
    return BRACKETS.get(token, token.replace("\\/", "/").replace("\\*", "*"))


def _refuse_outside(where: str, text: str, *, after: bool) -> NoReturn:
    if text.startswith(")"):
        raise DataError(f"{where}: a bracket is closed that was never opened")
    side = "after" if after else "before"
    raise DataError(
        f"{where}: found {text[:40]!r} {side} the tree; expected one tree on a line and nothing "
        "else, as in (3 (2 It) (4 works))"
    )
