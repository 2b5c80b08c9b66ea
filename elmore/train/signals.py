"""Stop signals of a training: collected, so that it can save a checkpoint before it ends."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_BURST = 2.0  # seconds in which repeated signals count as one


@contextmanager
def catch_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of dying of them.

    Schedulers and torchrun repeat a signal; a second Ctrl-C some seconds later ends the process.
    """
    received: list[int] = []
    before: dict[int, Any] = {}
    first = math.inf

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if number == signal.SIGINT and time.monotonic() - first > _BURST:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        first = min(first, time.monotonic())
        received.append(number)

    with suppress(ValueError):  # only the main thread can handle signals
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, handle)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
