"""Column files of predicates and their arguments.

A file has one token per line. One column marks the predicates, and each predicate has a column of
arguments, in the order of the predicates (`props`). Three formats are read and written; the format
of a file is detected from its first line:

- `propbank`, the gold_conll of PropBank's releases: document, sentence, number, word, tag, parse,
  lemma, roleset, then the arguments.
- `conll2012`: document, part, number, word, tag, parse, lemma, roleset number, sense, speaker,
  names, then the arguments, and coreference last.
- `conll2005`: the word first, anything or nothing between, then the targets (a lemma or -) and the
  arguments: the props files of the shared task, pasted to their words.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from elmore import atomic
from elmore.errors import DataError
from elmore.tasks.data.columns import read_blocks
from elmore.tasks.srl.props import cells_to_tags, tags_to_cells

Format = Literal["propbank", "conll2012", "conll2005"]


@dataclass(frozen=True)
class Frame:
    """A predicate and its arguments."""

    predicate: int
    """Index of its token."""
    sense: str
    """As in the file: a roleset such as `leave.01`, or a lemma."""
    tags: list[str]
    """BIO tags, one per token; the predicate itself is V."""


@dataclass(frozen=True)
class SRLExample:
    """A sentence and its frames; none in prediction."""

    tokens: list[str]
    frames: list[Frame]


class _Columns(NamedTuple):
    word: int
    tag: int | None
    senses: tuple[int, ...]
    """The last of them is - for a token that is not a predicate."""
    arguments: int
    """The first argument column."""
    behind: int
    """How many columns follow the arguments."""


_PROPBANK = _Columns(word=3, tag=4, senses=(7,), arguments=8, behind=0)
_CONLL2012 = _Columns(word=3, tag=4, senses=(6, 7), arguments=11, behind=1)


class _Row(NamedTuple):
    where: str
    fields: list[str]


def read_srl(
    path: str | Path,
    *,
    form: Format | Literal["auto"] = "auto",
    predicates: Literal["all", "verbs"] = "all",
) -> list[SRLExample]:
    """Read the sentences of a file, including those without a predicate.

    Args:
        path: a file, or a pattern.
        form: its format.
        predicates: `verbs` skips predicates whose tag does not start with VB; those of CoNLL-2005
            are all verbs.
    """
    text = list(read_blocks(path))
    form = _detect_format(text) if form == "auto" else form
    sentences = []
    for block in text:
        # in the other formats, a line starts with the name of a document
        lines = [item for item in block if form == "conll2005" or not item[1].startswith("#")]
        if lines:
            # props pasted to their words have a tab there and spaces elsewhere
            tabs = form != "conll2005"
            rows = [_Row(where, _fields(line, tabs=tabs)) for where, line in lines]
            sentences.append(_sentence(rows, form, predicates))
    if not sentences:
        raise DataError(f"{path}: no sentence found; expected lines of words and argument columns")
    return sentences


def _detect_format(text: Sequence[Sequence[tuple[str, str]]]) -> Format:
    """Return the format of a file, from its first line that is not a comment."""
    if text and text[0][0][1].startswith("#begin document"):
        return "conll2012"
    lines = (line for block in text for _, line in block if not line.startswith("#"))
    first = _fields(next(lines, ""), tabs=True)
    if len(first) < _PROPBANK.arguments or not all(field.isdecimal() for field in first[1:3]):
        return "conll2005"
    no_predicate = len(first) == _PROPBANK.arguments
    return "propbank" if no_predicate or "*" in first[_PROPBANK.arguments] else "conll2012"


def _fields(line: str, *, tabs: bool) -> list[str]:
    # Not `split()`: a no-break space may be part of a token.
    if tabs and "\t" in line:
        return line.rstrip("\t ").split("\t")
    return re.split("[\t ]+", line.strip("\t "))


def _sentence(
    rows: Sequence[_Row], form: Format, predicates: Literal["all", "verbs"]
) -> SRLExample:
    columns = _columns(rows, form)
    frames = list(_frames(rows, columns))
    if predicates == "verbs" and columns.tag is not None:
        frames = [f for f in frames if rows[f.predicate].fields[columns.tag].startswith("VB")]
    return SRLExample([row.fields[columns.word] for row in rows], frames)


def _columns(rows: Sequence[_Row], form: Format) -> _Columns:
    """Return the column layout of a sentence, whose lines must be equally long."""
    where, first = rows[0]
    for row in rows:
        if len(row.fields) != len(first):
            raise DataError(
                f"{row.where}: {len(row.fields)} columns, where the sentence begins with "
                f"{len(first)}; expected the same in each of its lines"
            )
    if form == "conll2005":
        return _columns_of_2005(rows)
    columns = _PROPBANK if form == "propbank" else _CONLL2012
    least = columns.arguments + columns.behind
    if len(first) < least:
        raise DataError(
            f"{where}: {len(first)} columns, expected {least} and one more for each predicate of "
            f"the sentence, as {form} has them; is data.format right?"
        )
    return columns


def _columns_of_2005(rows: Sequence[_Row]) -> _Columns:
    """Find the column of targets: the last one without brackets."""
    width = len(rows[0].fields)
    plain = [c for c in range(width) if not any(set(row.fields[c]) & set("(*)") for row in rows)]
    target = plain[-1] if plain else 0
    if not target:
        raise DataError(
            f"{rows[0].where}: expected a word, its target (a lemma or -) and a column for each "
            f"predicate, found {' '.join(rows[0].fields)[:40]!r}; words in a file of their own are "
            "joined to their props with `paste`"
        )
    return _Columns(word=0, tag=None, senses=(target,), arguments=target + 1, behind=0)


def _frames(rows: Sequence[_Row], columns: _Columns) -> Iterator[Frame]:
    predicates = [i for i, row in enumerate(rows) if row.fields[columns.senses[-1]] != "-"]
    where, fields = rows[0]
    number = len(fields) - columns.arguments - columns.behind
    if number != len(predicates):
        marked = ", ".join(rows[i].fields[columns.word] for i in predicates) or "none"
        raise DataError(
            f"{where}: the sentence has these predicates: {marked}; argument columns: {number}; "
            "expected one for each"
        )
    locations = [row.where for row in rows]
    for column, predicate in enumerate(predicates, start=columns.arguments):
        tags = cells_to_tags([row.fields[column] for row in rows], locations)
        sense = ".".join(rows[predicate].fields[i] for i in columns.senses)
        _check_verb(tags, predicate, locations, f"column {column + 1}, of {sense},")
        yield Frame(predicate, sense, tags)


def _check_verb(tags: Sequence[str], predicate: int, locations: Sequence[str], column: str) -> None:
    """Refuse a column whose (V*) is missing, repeated, or not at its predicate."""
    verbs = [location for location, tag in zip(locations, tags, strict=True) if tag == "B-V"]
    if not verbs:
        raise DataError(
            f"{locations[predicate]}: {column} has arguments and no predicate; expected a (V*)"
        )
    if len(verbs) > 1:
        raise DataError(
            f"{verbs[1]}: {column} has a second (V*), after that of {verbs[0]}; expected one, and "
            "(C-V*) for a further part of it"
        )
    # the mark may be at a later part of the predicate: (V*) flip (C-V*) flopped, flipflop.01
    if tags[predicate].partition("-")[2] not in ("V", "C-V"):
        raise DataError(
            f"{locations[predicate]}: {column} has its (V*) elsewhere, at {verbs[0]}; expected it "
            "on the predicate here, and columns in the order of their predicates"
        )


def write_srl(path: Path, sentences: Sequence[SRLExample], form: Format = "conll2005") -> None:
    """Write sentences; unknown columns are filled with - or *."""
    text = "\n".join(
        "".join("\t".join(fields) + "\n" for fields in _lines(number, sentence, form))
        for number, sentence in enumerate(sentences)
    )
    if form == "conll2012":
        text = f"#begin document (-); part 000\n{text}\n#end document\n"
    atomic.write(path, text.encode("utf-8", "replace"))


def _lines(number: int, sentence: SRLExample, form: Format) -> Iterator[list[str]]:
    invalid = [word for word in sentence.tokens if not word or re.search(r"[\t\n ]", word)]
    if invalid:
        raise DataError(f"a column file cannot hold a word with blanks in it, found {invalid[0]!r}")
    senses = {frame.predicate: frame.sense for frame in sentence.frames}
    cells = [tags_to_cells(frame.tags) for frame in sentence.frames]
    for i, word in enumerate(sentence.tokens):
        sense = senses.get(i, "-")
        lemma, _, roleset = sense.rpartition(".")
        arguments = [column[i] for column in cells]
        fields = ["-", str(number), str(i), word, "-", "*", lemma or sense]
        yield {
            "propbank": [*fields, sense, *arguments],
            "conll2012": [*fields, roleset, "-", "-", "*", *arguments, "-"],
            "conll2005": [word, sense, *arguments],
        }[form]
