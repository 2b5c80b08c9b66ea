"""Names in text, from the column files of CoNLL-2002 and -2003, WNUT-17 and their kin.

Chunks are names, too, as far as these files go: those of CoNLL-2000 are read alike.

Whatever letters the tags of a file have, they become BIO on reading.
"""

import re
from pathlib import Path

from elmore.errors import DataError
from elmore.tasks.data.columns import Tagged, blocks
from elmore.tasks.metrics.bio import TAG, to_bio


def read(path: str | Path, *, column: int = -1, encoding: str = "utf-8") -> list[Tagged]:
    """Read the sentences of a file: the token in its first column, the tag in the given one.

    Columns are set apart by tabs where a line has one, by blanks otherwise, and all lines have as
    many. Left out are the `-DOCSTART-` lines and the comments: lines that open with "# " and have
    no tag in that column.
    """
    sentences = []
    width = 0
    for block in blocks(path, encoding=encoding):
        tokens, tags = [], []
        for where, line in block:
            fields = _fields(where, line, column)
            if fields is None:
                continue
            width = width or len(fields)
            if len(fields) != width:
                raise DataError(
                    f"{where}: expected {width} columns, as in the lines before, found "
                    f"{len(fields)} in {line[:40]!r}"
                )
            tokens.append(fields[0])
            tags.append(fields[column].strip(" "))
        if tokens:
            sentences.append(Tagged(tokens, to_bio(tags)))
    if not sentences:
        raise DataError(f"{path}: no sentence found; expected lines of a token and its tag")
    return sentences


def _fields(where: str, line: str, column: int) -> list[str] | None:
    """Give the columns of a line, or None where it holds neither token nor tag."""
    line = line.rstrip(" \t")
    # Not `split()`: a no-break space may be part of a token.
    fields = line.split("\t") if "\t" in line else re.split(" +", line)
    tag = fields[column].strip(" ") if -len(fields) <= column < len(fields) else None
    is_tag = len(fields) > 1 and tag is not None and TAG.fullmatch(tag)
    if fields[0] == "-DOCSTART-" or (not is_tag and (line == "#" or line.startswith("# "))):
        return None
    if len(fields) < 2 or tag is None:
        raise DataError(
            f"{where}: expected a token, its tag in column {column} (from 0, or from the end), "
            f"found {len(fields)} column{'s' * (len(fields) > 1)} in {line[:40]!r}"
        )
    if not is_tag:
        raise DataError(
            f"{where}: expected O or a tag such as B-person in column {column}, found {tag!r}; "
            "is it the right column?"
        )
    if not fields[0].strip(" "):
        raise DataError(f"{where}: the tag {tag!r} has no token before it")
    return fields
