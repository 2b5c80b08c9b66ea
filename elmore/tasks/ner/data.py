"""Column files with BIO tags: CoNLL-2002 and -2003, WNUT-17, and the chunks of CoNLL-2000.

Whatever prefixes the tags of a file have, they are converted to BIO.
"""

import re
from pathlib import Path

from elmore.errors import DataError
from elmore.tasks.data.columns import TaggedSentence, read_blocks
from elmore.tasks.metrics.bio import TAG, to_bio


def read_conll(
    path: str | Path, *, column: int = -1, encoding: str = "utf-8"
) -> list[TaggedSentence]:
    """Read the sentences of a file: the token in its first column, the tag in the given one.

    Columns are separated by tabs if a line has one, otherwise by spaces, and all lines have the
    same number of them. Skipped are `-DOCSTART-` lines and comments: lines that start with "# " and
    have no tag in that column.
    """
    sentences = []
    width = 0
    for block in read_blocks(path, encoding=encoding):
        tokens, tags = [], []
        for where, line in block:
            fields = _split_fields(where, line, column)
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
            sentences.append(TaggedSentence(tokens, to_bio(tags)))
    if not sentences:
        raise DataError(f"{path}: no sentence found; expected lines of a token and its tag")
    return sentences


def _split_fields(where: str, line: str, column: int) -> list[str] | None:
    """Return the columns of a line, or None if it is to be skipped."""
    line = line.rstrip(" \t")
    # Not `split()`: a no-break space may be part of a token.
    fields = line.split("\t") if "\t" in line else re.split(" +", line)
    tag = fields[column].strip(" ") if -len(fields) <= column < len(fields) else None
    is_tag = len(fields) > 1 and tag is not None and TAG.fullmatch(tag)
    if fields[0] == "-DOCSTART-" or (not is_tag and (line == "#" or line.startswith("# "))):
        return None
    if len(fields) < 2 or tag is None:
        raise DataError(
            f"{where}: expected a token and its tag in column {column} (counted from 0, or from "
            f"the end), found {len(fields)} column{'s' * (len(fields) > 1)} in {line[:40]!r}"
        )
    if not is_tag:
        raise DataError(
            f"{where}: expected O or a tag such as B-person in column {column}, found {tag!r}; "
            "is it the right column?"
        )
    if not fields[0].strip(" "):
        raise DataError(f"{where}: the tag {tag!r} has no token before it")
    return fields
