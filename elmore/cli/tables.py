"""Tables of results on stdout: drawn for a person, tab-separated for a pipe, or JSON."""

import json
import sys
from typing import Any


def print_table(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print rows that share their keys."""
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*rows[0], box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(Text(str(value)) for value in row.values()))  # [play] is no markup
        Console().print(table)
    else:
        print("\t".join(rows[0]))
        for row in rows:
            print("\t".join(map(str, row.values())))
