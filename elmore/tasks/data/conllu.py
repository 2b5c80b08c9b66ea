"""Lines of CoNLL-U: ten columns separated by tabs, the first two a number and a word."""

import re

from elmore.errors import DataError

_NUM_COLUMNS = 10
_ID = re.compile(r"\d+([-.]\d+)?")


def parse_line(where: str, line: str) -> list[str]:
    """Return the columns of a line, after checking the ID and the word.

    The ID of a word is an integer, such as 3; 3-4 is a multiword token (`don't`), and 8.1 an empty
    node, which is not in the text.
    """
    fields = line.split("\t")
    if len(fields) != _NUM_COLUMNS:
        raise DataError(
            f"{where}: expected {_NUM_COLUMNS} columns of CoNLL-U, separated by tabs, found "
            f"{len(fields)} in {line[:40]!r}"
        )
    number, word = fields[:2]
    if not _ID.fullmatch(number):
        raise DataError(f"{where}: expected an ID such as 3, 3-4 or 8.1, found {number!r}")
    if not word:
        raise DataError(f"{where}: the second column, the word, is empty")
    return fields
