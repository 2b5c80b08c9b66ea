"""Detect English prose among lists, tables, markup and other languages."""

import html
import re

_WORD_BYTES = bytes(
    byte if chr(byte) in "abcdefghijklmnopqrstuvwxyz0123456789" else 32 for byte in range(256)
)
ASCII_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
CAPITALS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FUNCTION_WORDS = frozenset(
    b"a about after all also an and are as at be because been but by can could did do does for "
    b"from had has have he her him his how i if in into is it its just like more my no not of "
    b"on one or our out she so some than that the their them there they this to up was we were "
    b"what when which who will with would you your".split()
)
MIN_FUNCTION_WORDS = 0.2
MAX_NOT_LETTERS = 0.15
MAX_CAPITALS = 0.2
MARKUP_CHARACTERS = b"|<>{}\\^~="
MARKUP = ("[[", "]]", "http:", "https:", "www.", "__", "**", "##", ". . .", "formula_", "\ufffd")
ENDS = (".", "!", "?", ":", ";", "…", '"', "”", "’")
_INVISIBLE = re.compile(r"[\u00ad\u200b\u200e\u200f\ufeff]")
_BRACKETS = [  # what extraction leaves of templates: "(; born 1942)", "(UN;)", "( )", "[2]"
    (re.compile(r"\(\s*(?:[;,:]\s*)+"), "("),
    (re.compile(r"[;,:]\s*\)"), ")"),
    (re.compile(r"\(\s*\)"), ""),
    (re.compile(r"\[\s*\]"), ""),
    (re.compile(r"\[(?:\d+|edit|citation needed|Illustration[^\]]*)\]"), ""),
]
_QUOTES = ("``", "''", "‘‘", "’’")
_SPACE_BEFORE = re.compile(r" ([,;.)])(?=\s|$)")


def tidy(text: str) -> str:
    """Return a paragraph on one line, without entities and the remains of templates."""
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = _INVISIBLE.sub("", text)
    if "(" in text or "[" in text:
        for pattern, replacement in _BRACKETS:
            text = pattern.sub(replacement, text)
    for quote in _QUOTES:
        text = text.replace(quote, '"')
    text = " ".join(text.split())
    if any(pair in text for pair in (" ,", " ;", " .", " )")):
        text = _SPACE_BEFORE.sub(r"\1", text)
    return text


def split_words(text: str) -> list[bytes]:
    """Return the words of overlap: what [a-z0-9]+ matches in the lower-cased text."""
    return text.lower().encode().translate(_WORD_BYTES).split()


def is_prose(text: str, words: list[bytes], min_words: int) -> bool:
    """Return whether a paragraph is English prose of some length."""
    if (
        len(words) < min_words
        or not text.rstrip("'’)]").endswith(ENDS)
        or any(mark in text for mark in MARKUP)
    ):
        return False
    raw = text.encode()
    if len(raw.translate(None, MARKUP_CHARACTERS)) < len(raw):
        return False
    letters = len(raw) - len(raw.translate(None, ASCII_LETTERS))
    capitals = len(raw) - len(raw.translate(None, CAPITALS))
    others = len(raw) - letters - raw.count(b" ")
    if others > MAX_NOT_LETTERS * len(raw) or capitals > MAX_CAPITALS * letters:
        return False
    return sum(map(FUNCTION_WORDS.__contains__, words)) >= MIN_FUNCTION_WORDS * len(words)
