"""The other columns of a table of texts, on their way to the file of vectors.

A value is a text, a number, a truth value or nothing; anything else becomes JSON.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

Kind = Literal["bool", "int64", "double", "string"]
_OURS = re.compile(r"line|tokens|vectors|layer_\d+")  # columns of a file of vectors


def output_columns(others: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns under names that are free in the output, with simple values."""
    return {_output_name(name, others): _simplify(value) for name, value in others.items()}


def _output_name(name: str, others: Mapping[str, Any]) -> str:
    free = escape(name)
    if not name or _OURS.fullmatch(name):
        free = f"input_{name or 'unnamed'}"  # HDF5 has no attributes without a name
    while free != name and free in others:
        free = f"input_{free}"
    return free


def escape(text: str) -> str:
    """Write NUL and lone surrogates, which not every file can store, as escapes."""
    return text.replace("\0", r"\x00").encode("utf-8", "backslashreplace").decode()


def _simplify(value: Any) -> bool | int | float | str | None:  # noqa: ANN401 -- of any table
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    return json.dumps(value, default=str, ensure_ascii=False)


def infer_kinds(rows: Iterable[Mapping[str, Any]]) -> dict[str, Kind]:
    """Return the type of each column: that of its values, text if they differ."""
    found: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, set()).add(type(value))
    return {name: _common_kind(types - {type(None)}) for name, types in found.items()}


def _common_kind(types: set[type]) -> Kind:
    if types == {bool}:
        return "bool"
    if types == {int}:
        return "int64"
    return "double" if types and types <= {int, float} else "string"


def convert(value: Any, kind: Kind) -> bool | int | float | str | None:  # noqa: ANN401 -- simple
    """Return a simple value as one of its column's type."""
    if value is None or (kind == "string" and isinstance(value, str)):
        return value
    if kind == "string":
        return json.dumps(value)
    return float(value) if kind == "double" else value
