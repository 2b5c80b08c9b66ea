"""Every use of a word in plain or sense-annotated text.

In plain text a use is a token that is the word, in upper or lower case; in annotated text, an
instance of the lemma, in any inflection, with its first gold key as its sense.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elmore.errors import DataError
from elmore.probe import sample
from elmore.probe.sense_data import SenseCorpus
from elmore.text.files import Lines


@dataclass(frozen=True)
class Use:
    """Tokens `start` to `end` of a sentence, and what they mean where somebody said so."""

    tokens: list[str]
    start: int
    end: int
    sense: str | None = None


def find(
    word: str,
    corpora: Iterable[str],
    *,
    most: int,
    seed: int = 0,
    ready: bool = False,
    split: bool = False,
    column: str = "text",
    errors: Literal["strict", "replace"] = "strict",
) -> tuple[list[Use], int]:
    """Draw so many uses of a word, and say of how many they are.

    `ready` and `split` are about plain text: it is split on spaces already, and its lines are to
    be cut into sentences.
    """
    names = list(corpora)

    def uses() -> Iterator[Use]:
        for name in names:
            if _annotated(name):
                yield from _in_senses(word, SenseCorpus(name))
            else:
                lines = Lines([name], column=column, errors=errors)
                yield from _in_text(word, sample.tokenized(lines, ready=ready, split=split))

    found, total = sample.drawn(uses(), most, seed)
    if total < 2:
        often = "only once" if total else "nowhere"
        raise DataError(
            f"{word!r} occurs {often} in {', '.join(names)}; a map needs two uses or more of a "
            "word that is one token, or a lemma of annotated text"
        )
    return found, total


def _annotated(name: str) -> bool:
    return Path(name).is_dir() or ".data.xml" in Path(name).name


def _in_text(word: str, sentences: Iterable[list[str]]) -> Iterator[Use]:
    wanted = word.casefold()
    for tokens in sentences:
        for place, token in enumerate(tokens):
            if token.casefold() == wanted:
                yield Use(tokens, place, place + 1)


def _in_senses(word: str, corpus: SenseCorpus) -> Iterator[Use]:
    lemma = word.lower().replace(" ", "_")
    for sentence in corpus:
        for instance in sentence.instances:
            if instance.lemma == lemma:
                yield Use(sentence.words, instance.start, instance.end, instance.keys[0])
