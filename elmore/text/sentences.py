"""Raw text to sentences, each given by its place in the text.

Where a sentence ends is for `sentencex` to say. It is shown a text of the same length and its
answer is used as cuts only, so that a span is a stretch of the text itself and no character but
whitespace is ever lost.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from elmore.errors import DataError

# A line break, then nothing but whitespace up to the next one; or the paragraph separator
BLANK_LINES = re.compile(r"(?:\r\n?+|\n)[^\S\r\n]*+[\r\n]\s*+|\u2029\s*+")

# sentencex never cuts between two quotes or brackets, and takes any two for a pair: one that is
# left open, or one apostrophe, and pages of text become one sentence. So it gets to see spaces
# (and in "can't" a letter: the t alone would pass for an initial).
MARKS = "\"'`‘’‚‛“”„‟«»‹›(){}"
HIDDEN = str.maketrans(MARKS, " " * len(MARKS))
APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
# The marks in a gap that belong to the sentence before it; “ and « close in some languages
CLOSING = re.compile(r"(?:[^\s‘“„«‹({]|[‘“«](?=\s))*")
# How many characters sentencex reads at a time, and how many more before and after them: whether a
# sentence ends at a full stop depends on the words beside it, and on the brackets around it
WINDOW, CONTEXT = 2_000, 500
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which has no UTF-8


def split(text: str, language: str = "en") -> list[tuple[int, int]]:
    """Where each sentence starts and ends, without the whitespace around it.

    A blank line always ends a sentence; a single line break does not by itself, since text may be
    wrapped. `language` is a code such as "en" or "de": it decides which abbreviations are known.
    """
    spans, start = [], 0
    for blank in BLANK_LINES.finditer(text):
        spans += _in_paragraph(text, start, blank.start(), language)
        start = blank.end()
    return spans + _in_paragraph(text, start, len(text), language)


def _in_paragraph(text: str, start: int, end: int, language: str) -> list[tuple[int, int]]:
    cuts = [start, *(start + cut for cut in _cuts(text[start:end], language)), end]
    spans = []
    for left, right in pairwise(cuts):
        piece = text[left:right]
        if sentence := piece.strip():
            first = left + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(sentence)))
    return spans


def _cuts(text: str, language: str) -> list[int]:
    """Where a sentence of the paragraph ends and the next is about to start."""
    shown = SURROGATE.sub("\ufffd", APOSTROPHE.sub("x", text).translate(HIDDEN))
    cuts = []
    for before, start in pairwise([0, *_boundaries(shown, language)]):
        gap = text[before + len(shown[before:start].rstrip()) : start]
        if gap.strip() and text[start].islower():  # "What?" he said
            continue
        closing = CLOSING.match(gap)
        assert closing is not None
        cuts.append(start - len(gap) + closing.end())
    return cuts


def _boundaries(shown: str, language: str) -> Iterator[int]:
    """Yield where each sentence but the first starts, as sentencex finds it.

    It reads a window at a time: on a text without spaces its time grows with the square.
    """
    try:
        import sentencex
    except ImportError as error:
        raise DataError(
            "splitting text into sentences needs sentencex: pip install sentencex"
        ) from error

    done = 0
    while done < len(shown):
        first, last = max(0, done - CONTEXT), done + WINDOW + CONTEXT
        window = shown[first:last]
        # compiled and without stubs: pyrefly sees no names in it
        found = sentencex.get_sentence_boundaries(  # pyrefly: ignore[missing-attribute]
            language, window
        )
        end = len(shown) if last >= len(shown) else done + WINDOW
        starts = (first + boundary["start_index"] for boundary in found)
        yield from (start for start in starts if done < start <= end)
        done = end
