"""Sentence pairs for natural language inference: SNLI, MultiNLI, SICK and similar files.

A file is a table with columns separated by tabs and their names in the first line, or `.jsonl` with
one object per line and the same names:

    SNLI, MultiNLI    gold_label, sentence1, sentence2
    SICK              entailment_label or entailment_judgment, sentence_A, sentence_B
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from elmore import strict_json
from elmore.errors import DataError
from elmore.tasks.classification import LabeledExample
from elmore.text.files import expand_patterns, numbered_lines
from elmore.text.tokenizers import penn

LABELS = ("contradiction", "entailment", "neutral")

_UNDECIDED = "-"  # the annotators of SNLI did not agree
_COLUMNS = (
    ("gold_label", "sentence1", "sentence2"),
    ("entailment_label", "sentence_A", "sentence_B"),
    ("entailment_judgment", "sentence_A", "sentence_B"),
)
_EXPECTED = "gold_label, sentence1 and sentence2, or those of SICK"
_JSONL = re.compile(r"\.jsonl(?:\.\w+)?$")
# A clitic that another tokenizer has split off; alone, its ' could be read as an opening quote.
_SPLIT_CLITIC = re.compile(r"(?<=\w) (?=['’](?:s|d|m|ll|re|ve)(?:\s|$))", re.IGNORECASE)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SentencePair(LabeledExample):
    """Premise, hypothesis and their relation."""

    premise: list[str]
    hypothesis: list[str]


class _Row(NamedTuple):
    where: str
    label: str
    premise: str
    hypothesis: str


def read_pairs(
    path: str | Path,
    *,
    labels: Sequence[str] = LABELS,
    tokenize: Callable[[str], list[str]] | None = None,
) -> list[SentencePair]:
    """Read the pairs of a file; those without a gold label are skipped.

    Args:
        path: a file, or a pattern.
        labels: the labels that may occur, in lower case.
        tokenize: replaces `tokenize_pair_text`.
    """
    cut = tokenize or tokenize_pair_text
    pairs, undecided = [], 0
    for row in _rows(path):
        label = row.label.lower()
        if label == _UNDECIDED:
            undecided += 1
            continue
        if label not in labels:
            raise DataError(
                f"{row.where}: expected a label of {', '.join(labels)}, found {row.label!r}; "
                "data.labels names others"
            )
        premise, hypothesis = cut(row.premise), cut(row.hypothesis)
        if not (premise and hypothesis):
            which = "second" if premise else "first"
            raise DataError(f"{row.where}: the {which} sentence is empty, expected words")
        pairs.append(SentencePair(label, premise, hypothesis))
    if undecided:
        _log.info("%s: left out %d pairs without a gold label", path, undecided)
    if not pairs:
        raise DataError(
            f"{path}: no pair with a label found; expected a table or .jsonl with {_EXPECTED}"
        )
    return pairs


def tokenize_pair_text(text: str) -> list[str]:
    """Tokenize a text; raw or already tokenized, the result is the same."""
    return penn(_SPLIT_CLITIC.sub("", text)).words


def _rows(path: str | Path) -> Iterator[_Row]:
    for name in expand_patterns([str(path)]):
        lines = ((where, line) for where, line in numbered_lines(name) if line.strip())
        yield from _objects(lines) if _JSONL.search(name) else _table(lines)


def _objects(lines: Iterable[tuple[str, str]]) -> Iterator[_Row]:
    for where, line in lines:
        try:
            fields = strict_json.loads(line)
        except ValueError as error:
            raise DataError(f"{where}: expected a JSON object, found {line[:40]!r}") from error
        if not isinstance(fields, dict):
            raise DataError(f"{where}: expected a JSON object, found {line[:40]!r}")
        row = [fields[name] for name in _columns(where, list(fields))]
        if not all(isinstance(field, str) for field in row):
            raise DataError(f"{where}: expected three texts, found {str(row)[:80]}")
        yield _Row(where, *row)


def _table(lines: Iterable[tuple[str, str]]) -> Iterator[_Row]:
    columns: list[int] | None = None
    num_columns = 0
    for where, line in lines:
        fields = [field.strip(" ") for field in line.split("\t")]
        if columns is None:
            columns, num_columns = [fields.index(n) for n in _columns(where, fields)], len(fields)
            continue
        # Some releases leave out the last columns, the labels of single annotators.
        if not max(columns) < len(fields) <= num_columns:
            raise DataError(
                f"{where}: expected {num_columns} columns, as the first line names them, found "
                f"{len(fields)} in {line[:40]!r}"
            )
        yield _Row(where, *(fields[column] for column in columns))


def _columns(where: str, names: list[str]) -> tuple[str, str, str]:
    """Return the names of the columns to read."""
    for columns in _COLUMNS:
        if all(name in names for name in columns):
            return columns
    raise DataError(f"{where}: expected {_EXPECTED}, found {', '.join(names)[:80]!r}")
