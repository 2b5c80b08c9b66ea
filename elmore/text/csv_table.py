"""Read tables from `.csv` and `.tsv` files, also compressed; their first row names the columns."""

from typing import Literal, NamedTuple

from elmore.errors import DataError
from elmore.text.files import Lines, parse_delimited, table_suffix

_DELIMITERS = {"csv": ",", "tsv": "\t"}

Format = Literal["csv", "tsv"]
"""`csv` may have quotes, `tsv` has none."""


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
    return table_suffix(name).removeprefix(".") in _DELIMITERS


def read_table(
    name: str,
    *,
    format: Format | None = None,
    errors: Literal["strict", "replace"] = "strict",
) -> Table:
    """Read a table.

    Args:
        name: The file; - is stdin.
        format: Its format; by default the name says it.
        errors: Whether bytes that are not UTF-8 are refused or replaced.

    Raises:
        DataError: The file cannot be read, or its rows do not fit its header.
    """
    delimiter = _DELIMITERS[format or table_suffix(name).removeprefix(".")]
    lines = map(str, Lines([name], column=None, errors=errors))
    columns, *rows = parse_delimited(name, lines, tabs=delimiter == "\t")
    return Table(name, columns, rows, delimiter)
