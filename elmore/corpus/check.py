"""Look a text over before hours are spent on it: what is odd, where, and what to do about it.

All of it is read once, cheaply; its beginning is split into sentences and words as well.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import regex

from elmore.corpus.blocks import Line, Run, Text
from elmore.corpus.counting import sentences
from elmore.corpus.options import Options
from elmore.errors import DataError
from elmore.text.vocabulary import ELMO_MARKS

SAMPLE = 2 << 20
"""How many characters of the beginning are looked at closely."""
LONG_WORD = 100
LONG_SENTENCE = 400
_REMEMBERED = 1 << 18  # lines at most, to find those that repeat

_CONTROL = r"\x00-\x08\x0B\x0C\x0E-\x1F\x7F"
_SUSPECT = re.compile(rf"[{_CONTROL}\uFFFD<&\[{{]")  # most lines hold none of these
_MARK = "|".join(map(re.escape, ELMO_MARKS))
_ODDITIES = {
    "not UTF-8": (
        re.compile("\ufffd"),
        "convert it to UTF-8; --errors replace leaves U+FFFD in its place",
    ),
    "control characters": (re.compile(f"[{_CONTROL}]"), "is it text? they will be in words"),
    "markup": (
        re.compile(
            rf"(?!{_MARK})</?[a-zA-Z][\w:-]*(?:\s[^<>]*)?/?>"
            r"|&(?:[a-z]{2,8}|\#x?[0-9a-fA-F]+);|\[\[|\{\{"
        ),
        "clean the text, or the model learns markup",
    ),
    "marks as words": (re.compile(rf"(?<!\S)(?:{_MARK})(?!\S)"), "they become unknown words"),
}
_TOLERATED = {"markup": 0.001, "long words": 0.001}  # of the lines; of the others none
_LONG = re.compile(rf"\S{{{LONG_WORD}}}")
_ALONE, _ATTACHED = re.compile(r"(?<=\s)[.,;:!?](?=\s)"), re.compile(r"(?<=\w)[.,;:!?](?=\s)")
_SCRIPTS = {
    name: regex.compile(rf"[{letters}]")
    for name, letters in (
        ("Latin", r"\p{Latin}"),
        ("Cyrillic", r"\p{Cyrillic}"),
        ("Greek", r"\p{Greek}"),
        ("Arabic", r"\p{Arabic}"),
        ("Hebrew", r"\p{Hebrew}"),
        ("Devanagari", r"\p{Devanagari}"),
        ("Chinese or Japanese", r"\p{Han}\p{Hiragana}\p{Katakana}"),
        ("Korean", r"\p{Hangul}"),
        ("Thai", r"\p{Thai}"),
    )
}


class Finding(NamedTuple):
    """One thing looked at."""

    what: str
    found: str
    odd: bool = False
    advice: str = ""


def look_over(names: Sequence[str], options: Options) -> list[Finding]:
    """Say what the texts of files are like, and what of it is odd."""
    whole, sample, size = _Whole(), [], 0
    for line in Text(names, [], replace(options, errors="replace")):
        whole.add(line)
        if size < SAMPLE:
            sample.append(line)
            size += len(line.text)
    if not whole.num_words:
        raise DataError(f"{', '.join(names)}: no word in it; expected text to prepare")
    return [*whole.findings(), *_layout(sample, options), *_words(sample, options)]


class _Whole:
    """What is counted over all lines."""

    def __init__(self) -> None:
        self.num_words = 0
        self._num_lines = self._num_documents = self._num_characters = 0
        self._first: dict[str, str] = {}
        self._times = Counter[str]()
        self._repeats = _Repeats()

    def add(self, line: Line) -> None:
        self._num_lines += 1
        self._num_documents += line.opens
        self._num_characters += len(line.text)
        self.num_words += len(line.text.split())
        self._repeats.add(line.text)
        if _SUSPECT.search(line.text):
            for name, (pattern, _) in _ODDITIES.items():
                if pattern.search(line.text):
                    self._note(name, line)
        if len(line.text) >= LONG_WORD and _LONG.search(line.text):
            self._note("long words", line)

    def _note(self, name: str, line: Line) -> None:
        self._times[name] += 1
        self._first.setdefault(name, f"{line.name} line {line.number}")

    def findings(self) -> list[Finding]:
        one = self._num_documents == 1 and self._num_lines > 1
        width = self._num_characters / self.num_words
        repeated = self._repeats.share
        found = [
            Finding("lines", f"{self._num_lines:,}"),
            Finding(
                "documents",
                f"{self._num_documents:,}",
                one,
                "no blank line between documents: --valid-share cannot choose, pass --valid",
            ),
            Finding("words between spaces", f"{self.num_words:,}"),
            Finding(
                "characters per word",
                f"{width:.1f}",
                width > 15,
                "almost no spaces: split it with a tokenizer of its language, then --tokenized",
            ),
            Finding(
                "repeated lines",
                f"{100 * repeated:.1f} %",
                repeated > 0.05,
                "drop them, or the model learns them by heart",
            ),
        ]
        advice = {name: advice for name, (_, advice) in _ODDITIES.items()}
        advice["long words"] = f"words of {LONG_WORD} characters or more; is it text?"
        for name, to_do in advice.items():
            share = self._times[name] / self._num_lines
            said = (
                f"{100 * share:.2g} % of lines, first in {self._first[name]}" if share else "none"
            )
            found.append(Finding(name, said, share > _TOLERATED.get(name, 0), to_do))
        return found


class _Repeats:
    """The share of lines that stood before, from a sample that keeps all copies of a line."""

    def __init__(self) -> None:
        self._mask = 0
        self._seen = Counter[int]()

    def add(self, text: str) -> None:
        code = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        if code & self._mask == 0:
            self._seen[code] += 1
        if len(self._seen) > _REMEMBERED:
            self._mask = 2 * self._mask + 1
            kept = {code: n for code, n in self._seen.items() if code & self._mask == 0}
            self._seen = Counter(kept)

    @property
    def share(self) -> float:
        total = self._seen.total()
        return (total - len(self._seen)) / total if total else 0.0


def _layout(sample: list[Line], options: Options) -> list[Finding]:
    """See whether the text is tokenised, whether its lines are sentences, how it is written."""
    text = "\n".join(line.text for line in sample) + "\n"
    alone, attached = len(_ALONE.findall(text)), len(_ATTACHED.findall(text))
    marks = max(1, alone + attached)
    split = alone / marks
    wrong = split < 0.5 if options.tokenized else split > 0.9
    advice = "it looks tokenized: pass --tokenized"
    if options.tokenized:
        advice = "it looks like raw text: leave --tokenized away"
    inside = [
        not before.text.rstrip().endswith(tuple(".!?…:;\"'”’»)")) and line.text[:1].islower()
        for before, line in pairwise(sample)
        if not line.opens
    ]
    broken = sum(inside) / max(1, len(inside))
    letters = {name: len(pattern.findall(text)) for name, pattern in _SCRIPTS.items()}
    shares = Counter({name: n / max(1, sum(letters.values())) for name, n in letters.items()})
    scripts = [(name, share) for name, share in shares.most_common() if share >= 0.005]
    return [
        Finding(
            "punctuation on its own",
            f"{100 * split:.0f} %",
            wrong and alone + attached > 20,
            advice,
        ),
        Finding(
            "lines that end inside a sentence",
            f"{100 * broken:.0f} %",
            broken > 0.3 and len(inside) > 20 and not (options.wrapped or options.tokenized),
            "it looks wrapped: pass --wrapped",
        ),
        Finding(
            "scripts",
            ", ".join(f"{name} {100 * share:.0f} %" for name, share in scripts) or "none known",
            len(scripts) > 1 and scripts[1][1] > 0.05,
            "several languages in one text? they share one vocabulary",
        ),
    ]


def _words(sample: list[Line], options: Options) -> list[Finding]:
    """Split a sample as it will be, and see what comes out."""
    counts, lengths = Counter[str](), []
    for tokenized in (False, True):
        lines = [f"\n{line.text}" for line in sample if line.tokenized == tokenized]
        run = Run("train", tokenized, "\n".join(lines).encode())
        for words in sentences(run, options):
            counts.update(words)
            lengths.append(len(words))
    long = sum(length > LONG_SENTENCE for length in lengths)
    once = sum(n == 1 for n in counts.values()) / len(counts)
    share = f"{100 * long / len(lengths):.2g} % over {LONG_SENTENCE}"
    return [
        Finding(
            "words per sentence",
            f"{sum(lengths) / len(lengths):.1f}, longest {max(lengths):,}, {share}",
            long > 0.001 * len(lengths),
            "are there line breaks or full stops between sentences?",
        ),
        Finding("distinct words in a sample", f"{len(counts):,} of {counts.total():,}"),
        Finding(
            "of these seen once",
            f"{100 * once:.0f} %",
            once > 0.8 and counts.total() > 100_000,
            "are they words? numbers and codes do not repeat",
        ),
    ]
