"""Progress on stderr: one line that is rewritten on a terminal, or lines now and then in a pipe."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[..., None]
_TERMINAL, _PIPE = 0.1, 5.0  # seconds between two writes


class StatusLine:
    """A line that is rewritten on a terminal, and printed now and then in a pipe."""

    def __init__(self, last_write: float = -math.inf) -> None:
        self._terminal = sys.stderr.isatty()
        self._every = _TERMINAL if self._terminal else _PIPE
        self._last_write = last_write
        self._written = False

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last write."""
        return time.monotonic() - self._last_write >= self._every

    def write(self, line: str) -> None:
        """Replace the line, unless it was written just before."""
        if self.is_due:
            self._last_write, self._written = time.monotonic(), True
            _print(f"\r{line}\033[K" if self._terminal else f"{line}\n")

    def say(self, line: str) -> None:
        """Print a line that stays."""
        _print(f"\r{line}\033[K\n" if self._terminal else f"{line}\n")

    def close(self) -> None:
        """End the line."""
        if self._terminal and self._written:
            _print("\n")


def _print(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


@contextmanager
def show_status() -> Iterator[StatusLine]:
    """Yield a status line."""
    status = StatusLine()
    try:
        yield status
    finally:
        status.close()


@contextmanager
def show_progress(what: str) -> Iterator[Update]:
    """Yield `update(fraction, lines=120, tokens=3456)`, which shows the rate of the last count.

    `fraction` is the part that is done, for the time left; None if unknown. Nothing is shown for
    what takes less than a moment.
    """
    start = time.monotonic()
    status = StatusLine(last_write=start)
    first: tuple[float, float] | None = None

    def update(fraction: float | None, **counts: float) -> None:
        nonlocal first
        *_, (unit, count) = counts.items()
        if first is None:  # what a resumed job finds done does not count for the rate
            first = (count, fraction or 0.0)
        if not status.is_due:
            return
        seconds = time.monotonic() - start
        parts = [f"{what}:", *(f"{value:,.0f} {name}" for name, value in counts.items())]
        rate = (count - first[0]) / seconds
        parts.append(f"{rate:{',.0f' if rate >= 10 else '.2g'}} {unit}/s")
        if fraction and fraction > first[1]:
            left = seconds * (1 - fraction) / (fraction - first[1])
            parts.append(f"{100 * fraction:.0f} %, {clock(left)} left")
        status.write("  ".join(parts))

    try:
        yield update
    finally:
        status.close()


@contextmanager
def show_download() -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function of the bytes received and the total number of bytes."""
    with show_progress("downloading") as update:
        yield lambda done, total: update(done / total if total else None, MB=done / 1e6)


def clock(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
