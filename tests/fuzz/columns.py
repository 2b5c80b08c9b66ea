"""Damage to text files: fields that go, come twice or are garbage, lines likewise."""

import re
from random import Random

UNUSUAL = (
    "", "-", "_", "*", "(", ")", "(V*)", "(ARG0*", "*)", "B-", "I-PER", "B-PER", "O", "0", "-1",
    "1", "99", "1-2", "1.1",
    "3-1", "9" * 5000, "1e999", "nan", "inf", "١", "²", "(1", "1)", "(1)|(1", "#",
    "#begin document (x); part 000",
    "\x00", "\u2028", "\ufeff", "e\u0301", "x" * 5000, "Entity=(e1-person-1", "Entity=e1)", "a|b",
    "<", "&amp;", "\ud7ff",
    "]]>", "<corpus>", "</sentence>", "<!DOCTYPE a>", 'id="x"', "%", "a%1:", "lemma%9:00:00::",
    "\t", " ", "(3 ", "(2 a)",
)  # fmt: skip
_SEPARATORS = re.compile(r"([\t ]+)")


def mutate(data: bytes, rng: Random) -> bytes:
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    for _ in range(rng.choice((1, 1, 1, 3))):
        number = rng.randrange(len(lines))
        rng.choice((_fields, _fields, _fields, _fields, _lines))(lines, number, rng)
        if not lines:
            return b""
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _fields(lines: list[str], number: int, rng: Random) -> None:
    parts = _SEPARATORS.split(lines[number])  # fields at even places
    index = 2 * rng.randrange((len(parts) + 1) // 2)
    kind = rng.randrange(6)
    if kind == 0:
        del parts[index : index + 2]
    elif kind == 1:
        parts[index:index] = [parts[index], "\t"]
    elif kind == 2:
        other = 2 * rng.randrange((len(parts) + 1) // 2)
        parts[index], parts[other] = parts[other], parts[index]
    elif kind == 3:
        parts[index] = parts[index][: rng.randrange(len(parts[index]) + 1)]
    else:
        parts[index] = rng.choice(UNUSUAL)
    lines[number] = "".join(parts)


def _lines(lines: list[str], number: int, rng: Random) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        del lines[number]
    elif kind == 1:
        lines.insert(number, lines[number])
    elif kind == 2:
        lines.insert(number, rng.choice(("", " ", "\t", "# x", "garbage", "\udcff")))
    elif kind == 3:
        other = rng.randrange(len(lines))
        lines[number], lines[other] = lines[other], lines[number]
    else:
        lines[number] = lines[number] * 50
