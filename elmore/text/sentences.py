"""Split raw text into sentences, as spans of the text.

`sentencex` decides where a sentence ends. It gets a text of the same length, and its answer is used
only as positions, so that every span is a part of the text and only whitespace is dropped.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from elmore.errors import DataError

# A line break, then nothing but whitespace up to the next one; or the paragraph separator
BLANK_LINES = re.compile(r"(?:\r\n?+|\n)[^\S\r\n]*+[\r\n]\s*+|\u2029\s*+")

# sentencex never splits between two quotes or brackets, and pairs any two of them: after an
# unclosed one, or an apostrophe, pages of text would become one sentence. So they are replaced by
# spaces (and in "can't" by a letter: a single t would look like an initial).
MARKS = "\"'`‘’‚‛“”„‟«»‹›(){}"
HIDDEN = str.maketrans(MARKS, " " * len(MARKS))
APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
# The marks in a gap that belong to the sentence before it; some languages close with “ or «
CLOSING = re.compile(r"(?:[^\s‘“„«‹({]|[‘“«](?=\s))*")
# Characters that sentencex gets at a time, and the context before and after them: whether a
# sentence ends at a full stop depends on the words and brackets near it
WINDOW, CONTEXT = 2_000, 500
SURROGATE = re.compile("[\ud800-\udfff]")  # lone surrogates have no UTF-8


def split_sentences(text: str, language: str = "en") -> list[tuple[int, int]]:
    """Return the start and end of each sentence, without surrounding whitespace.

    A blank line always ends a sentence; a single line break does not, since text may be wrapped.

    Args:
        text: The text.
        language: A code such as "en" or "de", for its abbreviations.
    """
    spans, start = [], 0
    for blank in BLANK_LINES.finditer(text):
        spans += _split_paragraph(text, start, blank.start(), language)
        start = blank.end()
    return spans + _split_paragraph(text, start, len(text), language)


def _split_paragraph(text: str, start: int, end: int, language: str) -> list[tuple[int, int]]:
    cuts = [start, *(start + cut for cut in _sentence_ends(text[start:end], language)), end]
    spans = []
    for left, right in pairwise(cuts):
        piece = text[left:right]
        if sentence := piece.strip():
            first = left + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(sentence)))
    return spans


def _sentence_ends(text: str, language: str) -> list[int]:
    """Return the ends of the sentences of a paragraph, but the last."""
    masked = SURROGATE.sub("\ufffd", APOSTROPHE.sub("x", text).translate(HIDDEN))
    cuts = []
    for before, start in pairwise([0, *_boundaries(masked, language)]):
        gap = text[before + len(masked[before:start].rstrip()) : start]
        if gap.strip() and text[start].islower():  # "What?" he said
            continue
        closing = CLOSING.match(gap)
        assert closing is not None
        cuts.append(start - len(gap) + closing.end())
    return cuts


def _boundaries(text: str, language: str) -> Iterator[int]:
    """Yield where each sentence but the first starts, according to sentencex.

    It gets a window at a time, since its time is quadratic on text without spaces.
    """
    try:
        import sentencex
    except ImportError as error:
        raise DataError(
            "splitting text into sentences needs sentencex: pip install sentencex"
        ) from error

    done = 0
    while done < len(text):
        first, last = max(0, done - CONTEXT), done + WINDOW + CONTEXT
        window = text[first:last]
        # compiled and without stubs: pyrefly sees no names in it
        boundaries = sentencex.get_sentence_boundaries(  # pyrefly: ignore[missing-attribute]
            language, window
        )
        end = len(text) if last >= len(text) else done + WINDOW
        starts = (first + boundary["start_index"] for boundary in boundaries)
        yield from (start for start in starts if done < start <= end)
        done = end
