"""Check a text before training on it: report what is suspicious, where, and what to do.

The whole text is scanned once; its beginning is also split into sentences and words.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import regex

from elmore.corpus.blocks import Line, LineRun, TextSource
from elmore.corpus.counting import tokenize_sentences
from elmore.corpus.options import PrepareOptions
from elmore.errors import DataError
from elmore.text.vocabulary import ELMO_MARKS

SAMPLE = 2 << 20
"""Number of characters at the beginning that are split into sentences and words."""
LONG_WORD = 100
LONG_SENTENCE = 400
_MAX_HASHES = 1 << 18  # of lines, to find repeated ones

_CONTROL = r"\x00-\x08\x0B\x0C\x0E-\x1F\x7F"
_SUSPECT = re.compile(rf"[{_CONTROL}\uFFFD<&\[{{]")  # most lines contain none of these
_MARK = "|".join(map(re.escape, ELMO_MARKS))
_PATTERNS = {
    "not UTF-8": (
        re.compile("\ufffd"),
        "convert it to UTF-8; --errors replace puts U+FFFD in its place",
    ),
    "control characters": (re.compile(f"[{_CONTROL}]"), "is it text? they become part of words"),
    "markup": (
        re.compile(
            rf"(?!{_MARK})</?[a-zA-Z][\w:-]*(?:\s[^<>]*)?/?>"
            r"|&(?:[a-z]{2,8}|\#x?[0-9a-fA-F]+);|\[\[|\{\{"
        ),
        "remove it, or the model learns markup",
    ),
    "marks as words": (re.compile(rf"(?<!\S)(?:{_MARK})(?!\S)"), "they become unknown words"),
}
_TOLERATED = {"markup": 0.001, "long words": 0.001}  # fraction of the lines; 0 for the others
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
    """One property of the text."""

    what: str
    found: str
    suspicious: bool = False
    advice: str = ""


def lint_corpus(names: Sequence[str], options: PrepareOptions) -> list[Finding]:
    """Return properties of text files, and which of them are suspicious.

    Raises:
        DataError: There is no word in the files.
    """
    statistics, sample, size = _LineStatistics(), [], 0
    for line in TextSource(names, [], replace(options, errors="replace")):
        statistics.add(line)
        if size < SAMPLE:
            sample.append(line)
            size += len(line.text)
    if not statistics.num_words:
        raise DataError(f"{', '.join(names)}: contains no word; expected text to prepare")
    return [
        *statistics.findings(),
        *_layout_findings(sample, options),
        *_word_findings(sample, options),
    ]


class _LineStatistics:
    """Counts over all lines."""

    def __init__(self) -> None:
        self.num_words = 0
        self._num_lines = self._num_documents = self._num_characters = 0
        self._first: dict[str, str] = {}
        self._times = Counter[str]()
        self._repeats = _RepeatedLines()

    def add(self, line: Line) -> None:
        self._num_lines += 1
        self._num_documents += line.starts_document
        self._num_characters += len(line.text)
        self.num_words += len(line.text.split())
        self._repeats.add(line.text)
        if _SUSPECT.search(line.text):
            for name, (pattern, _) in _PATTERNS.items():
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
        repeated = self._repeats.fraction
        results = [
            Finding("lines", f"{self._num_lines:,}"),
            Finding(
                "documents",
                f"{self._num_documents:,}",
                one,
                "no blank line between documents: --valid-fraction cannot choose, pass --valid",
            ),
            Finding("words between spaces", f"{self.num_words:,}"),
            Finding(
                "characters per word",
                f"{width:.1f}",
                width > 15,
                "almost no spaces: use a tokenizer for its language, then pass --tokenized",
            ),
            Finding(
                "repeated lines",
                f"{100 * repeated:.1f} %",
                repeated > 0.05,
                "remove them, or the model memorises them",
            ),
        ]
        advice = {name: advice for name, (_, advice) in _PATTERNS.items()}
        advice["long words"] = f"words of {LONG_WORD} characters or more; is it text?"
        for name, action in advice.items():
            fraction = self._times[name] / self._num_lines
            value = "none"
            if fraction:
                value = f"{100 * fraction:.2g} % of lines, first in {self._first[name]}"
            results.append(Finding(name, value, fraction > _TOLERATED.get(name, 0), action))
        return results


class _RepeatedLines:
    """Estimates the fraction of repeated lines, from a sample by hash."""

    def __init__(self) -> None:
        self._mask = 0
        self._seen = Counter[int]()

    def add(self, text: str) -> None:
        code = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        if code & self._mask == 0:
            self._seen[code] += 1
        if len(self._seen) > _MAX_HASHES:
            self._mask = 2 * self._mask + 1
            sampled = {code: n for code, n in self._seen.items() if code & self._mask == 0}
            self._seen = Counter(sampled)

    @property
    def fraction(self) -> float:
        total = self._seen.total()
        return (total - len(self._seen)) / total if total else 0.0


def _layout_findings(sample: list[Line], options: PrepareOptions) -> list[Finding]:
    """Check whether the text is tokenized or hard-wrapped, and its scripts."""
    text = "\n".join(line.text for line in sample) + "\n"
    alone, attached = len(_ALONE.findall(text)), len(_ATTACHED.findall(text))
    marks = max(1, alone + attached)
    split = alone / marks
    wrong = split < 0.5 if options.tokenized else split > 0.9
    advice = "it looks tokenized: pass --tokenized"
    if options.tokenized:
        advice = "it looks like raw text: omit --tokenized"
    inside = [
        not before.text.rstrip().endswith(tuple(".!?…:;\"'”’»)")) and line.text[:1].islower()
        for before, line in pairwise(sample)
        if not line.starts_document
    ]
    broken = sum(inside) / max(1, len(inside))
    letters = {name: len(pattern.findall(text)) for name, pattern in _SCRIPTS.items()}
    fractions = Counter({name: n / max(1, sum(letters.values())) for name, n in letters.items()})
    scripts = [(name, fraction) for name, fraction in fractions.most_common() if fraction >= 0.005]
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
            broken > 0.3 and len(inside) > 20 and not (options.hard_wrapped or options.tokenized),
            "it looks hard-wrapped: pass --hard-wrapped",
        ),
        Finding(
            "scripts",
            ", ".join(f"{name} {100 * fraction:.0f} %" for name, fraction in scripts)
            or "none known",
            len(scripts) > 1 and scripts[1][1] > 0.05,
            "several languages in one text? they will share one vocabulary",
        ),
    ]


def _word_findings(sample: list[Line], options: PrepareOptions) -> list[Finding]:
    """Split a sample into sentences and words, and check their lengths and counts."""
    counts, lengths = Counter[str](), []
    for tokenized in (False, True):
        lines = [f"\n{line.text}" for line in sample if line.tokenized == tokenized]
        run = LineRun("train", tokenized, "\n".join(lines).encode())
        for words in tokenize_sentences(run, options):
            counts.update(words)
            lengths.append(len(words))
    long = sum(length > LONG_SENTENCE for length in lengths)
    once = sum(n == 1 for n in counts.values()) / len(counts)
    long_fraction = f"{100 * long / len(lengths):.2g} % over {LONG_SENTENCE}"
    return [
        Finding(
            "words per sentence",
            f"{sum(lengths) / len(lengths):.1f}, longest {max(lengths):,}, {long_fraction}",
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
