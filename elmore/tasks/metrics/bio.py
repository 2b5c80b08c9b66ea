"""Stretches of a sentence as tags, one for each token: names, chunks, arguments.

A tag is O, or a letter and a type such as `B-person`. The letters differ from file to file: in IOB1
a B- stands only between two neighbours of one type, in BIO it opens every stretch, in BIOES (or
BILOU) the last token and a lone one have letters too.
"""

import re
from collections.abc import Sequence

from elmore.errors import DataError

TAG = re.compile(r"O|[BIESLU]-\S+")
_SINGLE, _LAST = ("S", "U"), ("E", "L")


def to_bio(tags: Sequence[str]) -> list[str]:
    """Rewrite the tags of a sentence so that B- opens each stretch and I- continues it, always.

    As conlleval does, this takes a tag that continues nothing, or something of another type, for
    the start of one.
    """
    bio = []
    open_type = None  # of the stretch that an I- here would continue
    for tag in tags:
        if not TAG.fullmatch(tag):
            raise DataError(f"expected O or a tag such as B-person, found {tag!r}")
        letter, _, kind = tag.partition("-")  # a type may have dashes of its own
        if letter == "O":
            open_type = None
            bio.append(tag)
            continue
        continues = kind == open_type and letter != "B" and letter not in _SINGLE
        bio.append(f"{'I' if continues else 'B'}-{kind}")
        open_type = None if letter in _SINGLE or letter in _LAST else kind
    return bio


def spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """Give the stretches of a sentence: first token, the token after the last, type."""
    found: list[tuple[int, int, str]] = []
    for place, tag in enumerate(to_bio(tags)):
        letter, _, kind = tag.partition("-")
        if letter == "B":
            found.append((place, place + 1, kind))
        elif letter == "I":  # in BIO it follows its own at once
            found[-1] = (found[-1][0], place + 1, kind)
    return found
