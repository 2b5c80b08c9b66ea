"""A line of CoNLL-U: ten columns, tabs between them, first a number and a word."""

import re

from elmore.errors import DataError

_NUM_COLUMNS = 10
_NUMBER = re.compile(r"\d+([-.]\d+)?")


def columns(where: str, line: str) -> list[str]:
    """Give the columns of a line, the number and the word of which are as they should be.

    The number of a word is 3; 3-4 is what stands for two of them in the text (`don't`), and 8.1 an
    empty node, which nobody wrote.
    """
    fields = line.split("\t")
    if len(fields) != _NUM_COLUMNS:
        raise DataError(
            f"{where}: a line of CoNLL-U has {_NUM_COLUMNS} columns, tabs between them, found "
            f"{len(fields)} in {line[:40]!r}"
        )
    number, word = fields[:2]
    if not _NUMBER.fullmatch(number):
        raise DataError(
            f"{where}: expected the number of a word, such as 3, 3-4 or 8.1, found {number!r}"
        )
    if not word:
        raise DataError(f"{where}: the second column, the word, is empty")
    return fields
