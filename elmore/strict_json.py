"""JSON from outside: parsed within bounds, and refused with a ValueError alone.

`json.loads` also gives up with a RecursionError, and what it accepts just below that limit makes
every later `repr` or recursive walk fail instead. So nesting is bounded here, far below it.
"""

import json
from typing import Any

from elmore.errors import DataError, ElmoreError

MAX_DEPTH = 64
"""How deep arrays and objects may nest; no file of ours comes near."""


def loads(data: str | bytes) -> Any:  # noqa: ANN401 -- whatever JSON can say
    """Parse JSON.

    Raises:
        ValueError: if it is no JSON, not UTF-8, or nested deeper than `MAX_DEPTH`.
    """
    too_deep = f"nested deeper than {MAX_DEPTH} levels"
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError(too_deep) from error
    opening = (b"[", b"{") if isinstance(data, bytes) else ("[", "{")
    if sum(map(data.count, opening)) > MAX_DEPTH and _is_too_deep(found):
        raise ValueError(too_deep)
    return found


def parse(data: str | bytes, where: str, *, family: type[ElmoreError] = DataError) -> Any:  # noqa: ANN401 -- whatever JSON can say
    """Parse JSON, or refuse it in one sentence that `where` leads."""
    try:
        return loads(data)
    except ValueError as error:
        raise family(f"{where}: not readable as JSON ({error})") from error


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
