"""Damage to files of arrays: headers, types, shapes, numbers, and the zips they are packed in."""

import io
import json
import struct
import zipfile
from collections.abc import Callable
from random import Random

import numpy as np

from tests.fuzz import plain_data, raw

_SHAPES = (
    "()",
    "(0,)",
    "(1,)",
    "(-1,)",
    "(2, 2)",
    "(99999999999999,)",
    "(0, 999999999999999999, 999999999999999999)",
    "(3",
    "'a'",
    "(1.5,)",
    "(None,)",
    "None",
    "3",
)
_KINDS = (
    "'<f4'",
    "'>f4'",
    "'<f2'",
    "'<i8'",
    "'<u4'",
    "'|O'",
    "'|V8'",
    "'<U3'",
    "''",
    "3",
    "[('a', '<f4')]",
    "'''",
)
_HEADERS = (
    "{",
    "}",
    "",
    "-" * 500 + "1",
    "[" * 300,
    "{" + " " * 65000 + "x",
    "{'descr': '<f4'}",
    "__import__('os')",
    "\n",
    "{'a': 1}",
)


def mutate_npy(data: bytes, rng: Random) -> bytes:
    if data[:6] != b"\x93NUMPY" or data[6] != 1:
        return raw.mutate(data, rng)
    (length,) = struct.unpack_from("<H", data, 8)
    header, numbers = data[10 : 10 + length].decode("latin-1"), data[10 + length :]
    kind = rng.randrange(6)
    if kind == 0:
        header = _between(header, "'shape': ", ", }", rng.choice(_SHAPES))
    elif kind == 1:
        header = _between(header, "'descr': ", ", 'fortran", rng.choice(_KINDS))
    elif kind == 2:
        header = rng.choice(
            (rng.choice(_HEADERS), header.replace("False", "True"), header.replace("True", "3"))
        )
    elif kind == 3:
        length = rng.randrange(1 << 16)
        return data[:8] + struct.pack("<H", length) + data[10:]
    else:
        numbers = _numbers(numbers, rng)
    encoded = header.encode("latin-1")
    return data[:8] + struct.pack("<H", len(encoded)) + encoded + numbers


def _between(text: str, start: str, end: str, new: str) -> str:
    begin = text.find(start) + len(start)
    return text[:begin] + new + text[max(begin, text.find(end, begin)) :]


def _numbers(data: bytes, rng: Random) -> bytes:
    """Change some numbers, and sometimes how many there are."""
    if not data or rng.random() < 0.2:
        return raw.mutate(data, rng)
    kind = rng.choice(("<f4", "<f8", "<i8", "<u4", "<f2"))
    size = np.dtype(kind).itemsize
    result = np.frombuffer(data[: len(data) // size * size], kind).copy()
    odd = (0, 1, 99, 2**15) if kind[1] == "f" or kind == "<u4" else (0, 1, -1, 2**40, -(2**62))
    for _ in range(rng.choice((1, 3, 20))):
        if len(result):
            result[rng.randrange(len(result))] = (
                np.nan if kind[1] == "f" and rng.random() < 0.3 else rng.choice(odd)
            )
    return result.tobytes() + data[len(result) * size :]


def mutate_safetensors(data: bytes, rng: Random) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header, numbers = json.loads(data[8 : 8 + length]), data[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    kind = rng.randrange(6)
    if kind == 0 or not names:
        text = plain_data.dumps(plain_data.mutate_value(header, rng), rng).encode()
        return len(text).to_bytes(8, "little") + text + numbers
    if kind == 1:
        return rng.randbytes(rng.choice((1, 3, 8))).ljust(8, b"\0") + data[8:]
    one = header[rng.choice(names)]
    if kind == 2:
        one["dtype"] = rng.choice(
            (
                "F16",
                "BF16",
                "I8",
                "U8",
                "I64",
                "BOOL",
                "F64",
                "F8_E4M3",
                "F8_E5M2",
                "C64",
                "U16",
                "F4",
                "?",
            )
        )
    elif kind == 3:
        one["shape"] = rng.choice(
            ([], [0], [-1], [1], one["shape"][::-1], [*one["shape"], 1], [2**60, 2**60], [2**63])
        )
    elif kind == 4:
        header["more"] = one
    else:
        numbers = _numbers(numbers, rng)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + numbers


def zipped(
    inside: Callable[[str], Callable[[bytes, Random], bytes]],
) -> Callable[[bytes, Random], bytes]:
    """Damage a zip: what is in a member (`inside` says how by its name), or the members."""

    def mutate(data: bytes, rng: Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = [
                (member, file.read(member)) for member in file.infolist() if not member.is_dir()
            ]
        index = rng.randrange(len(members))
        member, content = members[index]
        kind = rng.randrange(8)
        if kind == 0:
            member.filename = rng.choice(
                ("../x", "/x", "a/../../x", "C:x", "a\\b", "", "x\ny", "x" * 300, "a/b/")
            )
        elif kind == 1:
            members.append((member, content))
        elif kind == 2:
            del members[index]
        elif kind == 3:
            member.compress_type = zipfile.ZIP_DEFLATED
            content = content * rng.choice((1, 500))
        elif kind == 4:
            member.external_attr = rng.choice((0o120777, 0o040777, 0o010777)) << 16
        else:
            content = inside(member.filename)(content, rng)
        if kind != 2:
            members[index] = (member, content)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as file:
            for one, held in members:
                file.writestr(one, held, one.compress_type)
        return out.getvalue()

    return mutate
