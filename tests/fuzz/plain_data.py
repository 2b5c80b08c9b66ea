"""Damage to JSON and TOML: values of another type, keys that go or come twice, huge numbers."""

import json
import re
from random import Random
from typing import Any

from tests.fuzz import raw

UNUSUAL: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 0.5, -0.5,
    1e308,
    float("nan"), float("inf"), -float("inf"), "", "none", "x", "3", "\ud800", "a\0b", "../../x",
    "/etc/passwd", "x" * 5000, [], [[]], {}, {"a": 1}, [1, 2], ["a"], [None], [[1, "a"]], {"": {}},
)  # fmt: skip
DEEP = ("[" * 100 + "]" * 100, '{"a":' * 100 + "1" + "}" * 100, "[" * 5000 + "]" * 5000, "9" * 5000)
_MARK = "\u2620deep"

Place = tuple[Any, Any]
"""A container and the key or number of something in it."""


def places(value: Any) -> list[Place]:
    """Give every place of a tree; its largest lists are not looked at to the end."""
    result: list[Place] = []
    if isinstance(value, dict):
        result = [(value, key) for key in value]
    elif isinstance(value, list):
        result = [(value, number) for number in range(min(len(value), 20))]
    for holder, key in list(result):
        result += places(holder[key])
    return result


def mutate_value(value: Any, rng: Random) -> Any:
    """Damage a tree in place, and give it back; `_MARK` stands for what `json` cannot write."""
    result = places(value)
    if not result or rng.random() < 0.03:
        return rng.choice(UNUSUAL)
    holder, key = rng.choice(result)
    kind = rng.randrange(10)
    if kind < 6:
        holder[key] = rng.choice(UNUSUAL)
    elif kind == 6:
        del holder[key]
    elif kind == 7 and isinstance(holder, dict):
        holder[rng.choice(("", "more", "\ud800", "format"))] = rng.choice(UNUSUAL)
    elif kind == 7:
        holder.insert(key, rng.choice((holder[key], rng.choice(UNUSUAL))))
    elif kind == 8:
        holder[key] = _nudged(holder[key], rng)
    else:
        holder[key] = _MARK
    return value


def _nudged(value: Any, rng: Random) -> Any:
    """Give another value of the same type."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return rng.choice((value + 1, value - 1, -value, value * 1000, value / 2, str(value)))
    if isinstance(value, str):
        return rng.choice((value[:-1], value + "x", value.upper(), value * 3, [value]))
    if isinstance(value, list):
        return rng.choice((value[:-1], value * 2, value[::-1], [value], value[:1]))
    return list(value.items())


def dumps(value: Any, rng: Random) -> str:
    text = json.dumps(value)
    return text.replace(json.dumps(_MARK), rng.choice(DEEP))


def mutate_json(data: bytes, rng: Random) -> bytes:
    try:
        value = json.loads(data)
    except ValueError:  # some commands print an object a line
        return mutate_jsonl(data, rng)
    text = dumps(mutate_value(value, rng), rng)
    if rng.random() < 0.1:  # a key twice
        text = re.sub(
            r"\{(\"[^\"]*\":)", lambda found: f"{{{found[1]} 3, {found[1]}", text, count=1
        )
    return text.encode()


def mutate_jsonl(data: bytes, rng: Random) -> bytes:
    lines = data.decode().splitlines()
    number = rng.randrange(len(lines))
    kind = rng.randrange(8)
    if kind == 0:
        lines.insert(number, rng.choice(("", "null", "{}", "[]", "3", '"', "\u2028")))
    elif kind == 1:
        lines.insert(number, lines[number])
    elif kind == 2:
        del lines[number]
    else:
        lines[number] = dumps(mutate_value(json.loads(lines[number]), rng), rng)
    return "\n".join(lines).encode() + (b"\n" if rng.random() < 0.9 else b"")


TOML = (
    "0", "-1", "3", "9223372036854775808", "1e400", "nan", "-inf", "0.5", '""', '"x"', "true",
    "[]", "[[1, 2]]", "{}",
    "1979-05-27", "12:00:00", "9" * 5000, "[" * 3000 + "]" * 3000, "{ a = 1 }", '"\\u0000"',
    "[1, 'a']", "'''",
)  # fmt: skip


def mutate_toml(data: bytes, rng: Random) -> bytes:
    lines = data.decode().splitlines()
    settings = [number for number, line in enumerate(lines) if "=" in line] or [0]
    number = rng.choice(settings)
    kind = rng.randrange(6)
    if kind == 0:
        del lines[number]
    elif kind == 1:
        lines.insert(number, lines[number])
    elif kind == 2:
        lines.insert(
            number, rng.choice(("[more]", "[train.lr]", "[[model]]", "a.b.c = 1", "=", "["))
        )
    else:
        lines[number] = f"{lines[number].partition('=')[0]}= {rng.choice(TOML)}"
    return "\n".join(lines).encode()


def either(structured: Any, share: float = 0.7) -> Any:
    """Damage what a file says, or else its bytes."""

    def mutate(data: bytes, rng: Random) -> bytes:
        return structured(data, rng) if rng.random() < share else raw.mutate(data, rng)

    return mutate
