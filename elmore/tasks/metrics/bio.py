"""Labelled spans as BIO tags, one per token: names, chunks, arguments.

A tag is O, or a prefix and a type such as `B-person`. Files differ in their prefixes: in IOB1 a B-
is only used between two adjacent spans of the same type, in BIO (IOB2) it begins every span, in
BIOES (or BILOU) the last token of a span and a span of one token have prefixes of their own.
"""

import re
from collections.abc import Sequence

from elmore.errors import DataError

TAG = re.compile(r"O|[BIESLU]-\S+")
_SINGLE, _LAST = ("S", "U"), ("E", "L")


def to_bio(tags: Sequence[str]) -> list[str]:
    """Convert the tags of a sentence to BIO: B- begins each span and I- continues it.

    As in conlleval, a tag that continues nothing, or a span of another type, begins a span.
    """
    bio = []
    open_type = None  # of the span that an I- here would continue
    for tag in tags:
        if not TAG.fullmatch(tag):
            raise DataError(f"expected O or a tag such as B-person, found {tag!r}")
        prefix, _, kind = tag.partition("-")  # a type may contain dashes
        if prefix == "O":
            open_type = None
            bio.append(tag)
            continue
        continues = kind == open_type and prefix != "B" and prefix not in _SINGLE
        bio.append(f"{'I' if continues else 'B'}-{kind}")
        open_type = None if prefix in _SINGLE or prefix in _LAST else kind
    return bio


def extract_spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the spans of a sentence: first token, the token after the last, type."""
    spans: list[tuple[int, int, str]] = []
    for index, tag in enumerate(to_bio(tags)):
        prefix, _, kind = tag.partition("-")
        if prefix == "B":
            spans.append((index, index + 1, kind))
        elif prefix == "I":  # in BIO it directly follows its own span
            spans[-1] = (spans[-1][0], index + 1, kind)
    return spans
