"""Whether the time of a reader grows linearly with its text.

Used by text/test_sentences and text/test_tokenizers.
"""

import time
from collections.abc import Callable


def is_linear(read: Callable[[str], object], unit: str) -> bool:
    """Whether ten times the text takes some ten times as long; a square would be a hundred."""
    short = min(_seconds(read, unit, 10_000) for _ in range(3))
    most = 40 * max(short, 0.005)  # less than that is chance
    return any(_seconds(read, unit, 100_000) < most for _ in range(3))


def _seconds(read: Callable[[str], object], unit: str, size: int) -> float:
    text = unit * (size // len(unit))
    began = time.process_time()
    read(text)
    return time.process_time() - began
