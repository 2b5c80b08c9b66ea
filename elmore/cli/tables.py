"""Print tables of results: formatted on a terminal, tab-separated in a pipe, or as JSON."""

import json
import re
import sys
from typing import Any

_BREAKS = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")  # as str.splitlines has them


def print_table(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print rows that have the same keys."""
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
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


def escape_breaks(text: str) -> str:
    """Write tabs and line breaks as escapes: a list of tokens may have them inside a token."""
    return _BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _format(value: object) -> str:
    """Round numbers for people: four digits, or all before the point; JSON has the others."""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None else str(value)
