"""Parts of speech, from the CoNLL-U files of Universal Dependencies.

A line has ten columns, tabs between them: a number, the word, its lemma, its universal tag (UPOS),
the language's own tag (XPOS, for English that of the Penn treebank), its features such as
`Number=Sing|Person=3`, and four more.
"""

import re
from pathlib import Path
from typing import Literal

from elmore.errors import DataError
from elmore.tasks.tagged import Tagged, blocks

Column = Literal["xpos", "upos", "feats"]
_COLUMNS = {"upos": 3, "xpos": 4, "feats": 5}
_NUM_COLUMNS = 10


def read(path: str | Path, *, column: Column = "xpos") -> list[Tagged]:
    """Read the sentences of a file, as the words that have tags; features make one tag together.

    So `don't`, written 3-4, is its two words, and an empty node such as 8.1, which nobody wrote, is
    none.
    """
    sentences = []
    for block in blocks(path):
        rows = [row for where, line in block if (row := _row(where, line, column))]
        if rows:
            tokens, tags = zip(*rows, strict=True)
            sentences.append(Tagged(list(tokens), list(tags)))
    if not sentences:
        raise DataError(f"{path}: no sentence found; expected the lines of a CoNLL-U file")
    return sentences


def _row(where: str, line: str, column: Column) -> tuple[str, str] | None:
    """Give word and tag, or None for a line that holds neither."""
    if line.startswith("#"):
        return None
    fields = line.split("\t")
    if len(fields) != _NUM_COLUMNS:
        raise DataError(
            f"{where}: a line of CoNLL-U has {_NUM_COLUMNS} columns, tabs between them, found "
            f"{len(fields)} in {line[:40]!r}"
        )
    if re.fullmatch(r"\d+[-.]\d+", fields[0]):
        return None
    if not fields[0].isdecimal():
        raise DataError(
            f"{where}: expected the number of a word, such as 3, 3-4 or 8.1, found {fields[0]!r}"
        )
    word, tag = fields[1], fields[_COLUMNS[column]]
    if not word:
        raise DataError(f"{where}: the second column, the word, is empty")
    if not tag or (tag == "_" and column != "feats"):  # a word may well have no features
        other = "xpos" if column == "upos" else "upos"
        raise DataError(f"{where}: {word!r} has no {column} tag; does the file have {other} tags?")
    return word, tag
