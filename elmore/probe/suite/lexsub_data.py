"""The files of the English Lexical Substitution Task of SemEval-2007 (McCarthy and Navigli, 2007).

As orenmel/lexsub has them: sentences with the word between <head> and </head> in `lst_all.xml`,

    <instance id="1"> <context>He was <head>bright</head> and proud .</context> </instance>

its substitutes with the number of annotators that gave them in `lst_trial.gold` and `lst_test.gold`

    bright.a 1 :: intelligent 3;clever 3;smart 1;

and in `lst.gold.candidates` everything that was given for a lemma in any sentence: its candidates
(Thater et al., 2010). The first file is read by line, because it is not well-formed XML.
"""

import html
import re
from pathlib import Path

import numpy as np

from elmore.errors import DataError
from elmore.numbers import parse_uint
from elmore.probe.suite.embeddings import Tokens
from elmore.probe.suite.files import find_file
from elmore.probe.suite.substitution_set import SubstitutionSet, Target
from elmore.text.files import Lines, numbered_lines
from elmore.text.treebank import plain_punctuation

_INSTANCE = re.compile(r'<instance id="([^"]*)">')
_CONTEXT = re.compile(r"<context>(.*)<head>(.*)</head>(.*)</context>")
_GOLD = re.compile(r"(\S+) (\S+) ::(.*)")

Context = tuple[Tokens, int]
"""A sentence and the position of the word."""


def read_lexsub(folder: Path) -> SubstitutionSet:
    """Read the trial sentences as dev, and the test sentences."""
    contexts = _read_contexts(find_file(folder, "lst_all.xml"))
    candidates = _read_candidates(find_file(folder, "lst.gold.candidates"))
    dev, test = (
        _read_targets(find_file(folder, f"lst_{name}.gold"), contexts, candidates)
        for name in ("trial", "test")
    )
    return SubstitutionSet(dev, test, accepted=1)


def _read_contexts(path: Path) -> dict[str, Context]:
    contexts: dict[str, Context] = {}
    instance = None
    # A few of its lines are in no encoding
    for number, line in enumerate(Lines([str(path)], column=None, errors="replace"), start=1):
        where, line = f"{path}:{number}", str(line)
        if match := _INSTANCE.search(line):
            instance = match[1]
        elif "<context>" in line:
            match = _CONTEXT.search(line)
            if match is None or instance is None or not match[2].strip():
                raise DataError(
                    f"{where}: expected an instance and its context with a word between <head> and "
                    f"</head>, found {line.strip()[:60]!r}"
                )
            before, word, after = (
                [plain_punctuation(token) for token in html.unescape(part).split()]
                for part in match.groups()
            )
            contexts[instance] = (*before, *word, *after), len(before)
    return contexts


def _read_candidates(path: Path) -> dict[str, list[str]]:
    candidates = {}
    for where, line in numbered_lines(path):
        lemma, separator, texts = line.partition("::")
        if not separator:
            raise DataError(
                f"{where}: expected a lemma, '::' and its candidates, found {line[:60]!r}"
            )
        candidates[lemma.strip()] = [text.strip() for text in texts.split(";") if text.strip()]
    return candidates


def _read_targets(
    path: Path, contexts: dict[str, Context], candidates: dict[str, list[str]]
) -> list[Target]:
    targets = []
    for where, line in numbered_lines(path):
        match = _GOLD.fullmatch(line.strip())
        gold = _parse_votes(match[3]) if match else None
        if match is None or not gold:
            raise DataError(
                f"{where}: expected a lemma, a number, '::' and substitutes with their counts, "
                f"found {line[:60]!r}"
            )
        lemma, instance = ".".join(match[1].split(".")[:2]), match[2]  # bar.n.v is bar.n
        if instance not in contexts or lemma not in candidates:
            raise DataError(
                f"{where}: expected {instance!r} in lst_all.xml and {lemma!r} in "
                "lst.gold.candidates; are all files from the same place?"
            )
        texts = list(dict.fromkeys([*map(str.lower, candidates[lemma]), *gold]))
        weights = np.array([gold.get(text, 0) for text in texts], float)
        targets.append(
            Target(*contexts[instance], [tuple(text.split()) for text in texts], weights)
        )
    if not targets:
        raise DataError(f"{path}: found no target")
    return targets


def _parse_votes(text: str) -> dict[str, int] | None:
    """Return substitutes with their counts, or None if something else is between them."""
    gold: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        words, _, count = part.rpartition(" ")
        votes = parse_uint(count)
        if not words or not votes:
            return None
        gold[words.lower()] = votes
    return gold
