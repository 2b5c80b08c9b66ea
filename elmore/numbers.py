"""Unsigned integers in text files, within 64 bits."""

import re

_DIGITS = re.compile(r"[0-9]{1,18}")


def parse_uint(text: str) -> int | None:
    """Parse up to 18 ASCII digits without a sign; None for anything else."""
    return int(text) if _DIGITS.fullmatch(text) else None
