"""Whole numbers as files write them, within what 64 bits hold."""

import re

_DIGITS = re.compile(r"[0-9]{1,18}")


def whole_number(text: str) -> int | None:
    """Read a number of up to 18 ASCII digits without a sign; None for anything else."""
    return int(text) if _DIGITS.fullmatch(text) else None
