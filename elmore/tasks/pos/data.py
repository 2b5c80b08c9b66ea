"""Parts of speech, from the CoNLL-U files of Universal Dependencies.

A line has ten columns: a number, the word, its lemma, its universal tag (UPOS), the language's own
tag (XPOS, for English that of the Penn treebank), its features such as `Number=Sing|Person=3`, and
four more.
"""

from pathlib import Path
from typing import Literal

from elmore.errors import DataError
from elmore.tasks.data.columns import Tagged, blocks
from elmore.tasks.data.conllu import columns

Column = Literal["xpos", "upos", "feats"]
_COLUMNS = {"upos": 3, "xpos": 4, "feats": 5}


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
    fields = columns(where, line)
    if not fields[0].isdecimal():
        return None
    word, tag = fields[1], fields[_COLUMNS[column]]
    if not tag or (tag == "_" and column != "feats"):  # a word may well have no features
        other = "xpos" if column == "upos" else "upos"
        raise DataError(f"{where}: {word!r} has no {column} tag; does the file have {other} tags?")
    return word, tag
