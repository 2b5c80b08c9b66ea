"""Read tables from `.csv` and `.tsv` files, also compressed; their first row names the columns."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from elmore.errors import DataError
from elmore.text.files import COMPRESSIONS, Lines

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class Table(NamedTuple):
    """A table of strings."""

    name: str
    columns: list[str]
    rows: list[list[str]]
    delimiter: str

    def column(self, name: str) -> list[str]:
        """Return the cells of a column.

        Raises:
            DataError: The table has no such column.
        """
        if name not in self.columns:
            raise DataError(
                f"{self.name}: no column {name!r}, the table has {', '.join(self.columns)}"
            )
        number = self.columns.index(name)
        return [row[number] for row in self.rows]


def is_table(name: str) -> bool:
    """Return whether the name of a file ends as that of a table."""
    return _suffix(name) in _DELIMITERS


def _suffix(name: str) -> str:
    path = Path(name)
    return Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix


def read_table(name: str, *, errors: Literal["strict", "replace"] = "strict") -> Table:
    """Read a table.

    Raises:
        DataError: The file cannot be read, or its rows do not fit its header.
    """
    delimiter = _DELIMITERS[_suffix(name)]
    lines = (f"{line}\n" for line in Lines([name], column=None, errors=errors))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        # A row that csv gives as empty is an empty line, unless the table has a single column
        numbered = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise DataError(f"{name}: line {reader.line_num} is not CSV ({error})") from error
    if not numbered:
        raise DataError(f"{name}: expected a table, found no line; its first row names the columns")
    columns = numbered[0][1]
    _check_columns(name, columns)
    rows = []
    for number, row in numbered[1:]:
        cells = row or ([""] if len(columns) == 1 else [])
        if len(cells) not in (0, len(columns)):
            raise DataError(
                f"{name}: line {number} has {len(cells)} cells, the header has {len(columns)}"
            )
        if cells:
            rows.append(cells)
    return Table(name, columns, rows, delimiter)


def _check_columns(name: str, columns: Sequence[str]) -> None:
    for number, column in enumerate(columns):
        if column in columns[:number]:
            raise DataError(f"{name}: the header names {column!r} twice; rename one of them")
