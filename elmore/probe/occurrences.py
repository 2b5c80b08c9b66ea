"""Find every occurrence of a word in plain or sense-annotated text.

In plain text an occurrence is a token equal to the word, ignoring case. In annotated text it is an
instance of the lemma, in any inflection, with its first gold key as its sense.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elmore.errors import DataError
from elmore.probe import sample
from elmore.probe.sense_corpus import SenseCorpus
from elmore.text.files import Lines


@dataclass(frozen=True)
class Occurrence:
    """Tokens `start` to `end` of a sentence, and their sense where it is annotated."""

    tokens: list[str]
    start: int
    end: int
    sense: str | None = None


def find_occurrences(
    word: str,
    corpora: Iterable[str],
    *,
    max_uses: int,
    seed: int = 0,
    tokenized: bool = False,
    split: bool = False,
    column: str = "text",
    errors: Literal["strict", "replace"] = "strict",
) -> tuple[list[Occurrence], int]:
    """Draw at most `max_uses` occurrences of a word.

    `tokenized` and `split` apply to plain text: it is split on spaces only, and its lines are cut
    into sentences. Returns the sample, and the number of occurrences in the text.
    """
    names = list(corpora)

    def scan() -> Iterator[Occurrence]:
        for name in names:
            if _is_annotated(name):
                yield from _scan_senses(word, SenseCorpus(name))
            else:
                lines = Lines([name], column=column, errors=errors)
                sentences = sample.tokenize_lines(lines, tokenized=tokenized, split=split)
                yield from _scan_text(word, sentences)

    drawn, total = sample.reservoir_sample(scan(), max_uses, seed)
    if total < 2:
        often = "only once" if total else "nowhere"
        raise DataError(
            f"{word!r} occurs {often} in {', '.join(names)}; a map needs two or more occurrences "
            "of a word that is one token, or of a lemma in annotated text"
        )
    return drawn, total


def _is_annotated(name: str) -> bool:
    return Path(name).is_dir() or ".data.xml" in Path(name).name


def _scan_text(word: str, sentences: Iterable[list[str]]) -> Iterator[Occurrence]:
    target = word.casefold()
    for tokens in sentences:
        for position, token in enumerate(tokens):
            if token.casefold() == target:
                yield Occurrence(tokens, position, position + 1)


def _scan_senses(word: str, corpus: SenseCorpus) -> Iterator[Occurrence]:
    lemma = word.lower().replace(" ", "_")
    for sentence in corpus:
        for instance in sentence.instances:
            if instance.lemma == lemma:
                yield Occurrence(sentence.words, instance.start, instance.end, instance.keys[0])
