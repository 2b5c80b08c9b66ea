"""Parts of speech, from the CoNLL-U files of Universal Dependencies.

The columns: ID, word, lemma, universal tag (UPOS), tag of the language's own treebank (XPOS, for
English that of the Penn treebank), features such as `Number=Sing|Person=3`, and four more.
"""

from pathlib import Path
from typing import Literal

from elmore.errors import DataError
from elmore.tasks.data.columns import TaggedSentence, read_blocks
from elmore.tasks.data.conllu import parse_line

Column = Literal["xpos", "upos", "feats"]
_COLUMNS = {"upos": 3, "xpos": 4, "feats": 5}


def read_conllu(path: str | Path, *, column: Column = "xpos") -> list[TaggedSentence]:
    """Read the sentences of a file; the features of a word together are one tag.

    Only words with an integer ID are tokens: a multiword token such as `don't` (3-4) is its two
    words, and an empty node (8.1) is skipped.
    """
    sentences = []
    for block in read_blocks(path):
        rows = [row for where, line in block if (row := _parse_row(where, line, column))]
        if rows:
            tokens, tags = zip(*rows, strict=True)
            sentences.append(TaggedSentence(list(tokens), list(tags)))
    if not sentences:
        raise DataError(f"{path}: no sentence found; expected the lines of a CoNLL-U file")
    return sentences


def has_tags(path: str | Path, *, column: Column = "xpos") -> bool:
    """Return whether any word of a file has a tag in the column."""
    rows = (parse_line(*row) for block in read_blocks(path) for row in block if row[1][0] != "#")
    return any(row[_COLUMNS[column]] not in ("", "_") for row in rows if row[0].isdecimal())


def _parse_row(where: str, line: str, column: Column) -> tuple[str, str] | None:
    """Return word and tag, or None for a line without them."""
    if line.startswith("#"):
        return None
    fields = parse_line(where, line)
    if not fields[0].isdecimal():
        return None
    word, tag = fields[1], fields[_COLUMNS[column]]
    if not tag or (tag == "_" and column != "feats"):  # a word may have no features
        other = "xpos" if column == "upos" else "upos"
        raise DataError(f"{where}: {word!r} has no {column} tag; does the file have {other} tags?")
    return word, tag
