"""Parse untrusted JSON: bounded nesting, and no exception but ValueError. Write readable JSON.

`json.loads` may raise RecursionError, and data just below that limit makes every later `repr` or
recursive walk fail instead. So nesting is limited here, far below it.
"""

import json
from typing import Any

from elmore.errors import DataError, ElmoreError

MAX_DEPTH = 64
"""Maximum nesting of arrays and objects."""


def loads(data: str | bytes) -> Any:  # noqa: ANN401 -- any JSON value
    """Parse JSON.

    Raises:
        ValueError: It is not JSON, not UTF-8, or nested deeper than `MAX_DEPTH`.
    """
    too_deep = f"nested deeper than {MAX_DEPTH} levels"
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise ValueError(too_deep) from error
    opening = (b"[", b"{") if isinstance(data, bytes) else ("[", "{")
    if sum(map(data.count, opening)) > MAX_DEPTH and _is_too_deep(value):
        raise ValueError(too_deep)
    return value


def parse(data: str | bytes, where: str, *, error: type[ElmoreError] = DataError) -> Any:  # noqa: ANN401 -- any JSON value
    """Parse JSON; errors are of type `error`, with a message that starts with `where`."""
    try:
        return loads(data)
    except ValueError as problem:
        raise error(f"{where}: not readable as JSON ({problem})") from problem


def encode(value: object, *, indent: int) -> bytes:
    """Return JSON as a text file of UTF-8.

    Only lone surrogates are escaped, which UTF-8 does not have: they may be in a text, and in the
    name of a file that is not UTF-8.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return f"{text}\n".encode("utf-8", "backslashreplace")


def _is_too_deep(data: object) -> bool:
    level = [data] if isinstance(data, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            item
            for inside in level
            for item in (inside.values() if isinstance(inside, dict) else inside)
            if isinstance(item, dict | list)
        ]
    return bool(level)
