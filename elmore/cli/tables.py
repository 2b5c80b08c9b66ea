"""Print results: tables, formatted on a terminal and tab-separated in a pipe, and JSON."""

import json
import re
import sys
from typing import Any

_BREAKS = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")  # as str.splitlines has them


def print_json(data: object, *, indent: int | None = None) -> None:
    """Print JSON, on one line without an indent."""
    print(json.dumps(data, indent=indent, ensure_ascii=False))


def print_table(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print rows that have the same keys."""
    if as_json:
        print_json(rows, indent=2)
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*rows[0], box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(
                *(Text(_format(value)) for value in row.values())
            )  # Text: [play] is not markup
        Console().print(table)
    else:
        print("\t".join(rows[0]))
        for row in rows:
            print("\t".join(escape_breaks(_format(value)) for value in row.values()))


def print_findings(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print what --check found; in a table, with advice for the suspicious findings only."""
    for row in [] if as_json else rows:
        suspicious, advice = row.pop("suspicious"), row.pop("advice")
        row[""] = f"! {advice}" if suspicious else ""
    print_table(rows, as_json=as_json)


def escape_breaks(text: str) -> str:
    """Write tabs and line breaks as escapes: a list of tokens may have them inside a token."""
    return _BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _format(value: object) -> str:
    """Round numbers for people: four digits, or all before the point; JSON has the others."""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None else str(value)
