"""Damage that knows nothing of a format: bytes that flip, go missing, or come twice."""

from random import Random


def flip(data: bytes, rng: Random) -> bytes:
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if result:
            result[rng.randrange(len(result))] ^= 1 << rng.randrange(8)
    return bytes(result)


def overwrite(data: bytes, rng: Random) -> bytes:
    begin, size = _stretch(data, rng)
    new = rng.choice((b"\0", b"\xff", b" ", b"9", bytes([rng.randrange(256)]))) * size
    return data[:begin] + new + data[begin + size :]


def truncate(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.8 else b""


def insert(data: bytes, rng: Random) -> bytes:
    index = rng.randrange(len(data) + 1)
    new = rng.choice(
        (rng.randbytes(rng.randrange(1, 20)), b"\n", b"\t", b"\0", b"\xc3", b"[" * 3000)
    )
    return data[:index] + new + data[index:]


def cut_out(data: bytes, rng: Random) -> bytes:
    begin, size = _stretch(data, rng)
    return data[:begin] + data[begin + size :]


def repeat(data: bytes, rng: Random) -> bytes:
    begin, size = _stretch(data, rng)
    return data[: begin + size] + data[begin:]


def replace(data: bytes, rng: Random) -> bytes:
    return rng.choice(
        (rng.randbytes(len(data)), b"\0" * len(data), b"[]", b"{}", b"null", b"PK\3\4")
    )


def _stretch(data: bytes, rng: Random) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data) - begin, rng.choice((1, 4, 16, 200)))


KINDS = (flip, flip, flip, overwrite, truncate, insert, cut_out, repeat, replace)


def mutate(data: bytes, rng: Random) -> bytes:
    return rng.choice(KINDS)(data, rng)
