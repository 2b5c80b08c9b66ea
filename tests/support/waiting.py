"""Wait for a condition instead of a time. Used by tests/browser, tests/serve and tests/weights."""

import time
from collections.abc import Callable


def wait_until(is_true: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
