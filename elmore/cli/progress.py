"""Progress on stderr: one line that changes on a terminal, a plain line now and then in a pipe."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[..., None]
_TERMINAL, _PIPE = 0.1, 5.0  # seconds between two updates


@contextmanager
def showing(what: str) -> Iterator[Update]:
    """Give `update(fraction, lines=120, tokens=3456)`: the rate shown is that of the last count.

    `fraction` is how much is done, 0 to 1, or None where nobody knows; it gives the time left.
    """
    terminal = sys.stderr.isatty()
    meter = _Meter(what)

    def update(fraction: float | None, **counts: float) -> None:
        line = meter.line(fraction, counts, every=_TERMINAL if terminal else _PIPE)
        if line:
            end = "" if terminal else "\n"
            print(f"\r{line}\033[K" if terminal else line, end=end, file=sys.stderr, flush=True)

    try:
        yield update
    finally:
        if terminal and meter.shown:
            print(file=sys.stderr)


class _Meter:
    """When to show a line, and what it says."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.shown = False
        self._begun = self._last = time.monotonic()
        self._first: tuple[float, float] | None = None

    def line(self, fraction: float | None, counts: dict[str, float], *, every: float) -> str:
        now = time.monotonic()
        *_, (unit, last) = counts.items()
        if self._first is None:  # what a resumed job finds done is not its own speed
            self._first = (last, fraction or 0.0)
        if now - self._last < every:
            return ""
        self._last, self.shown = now, True
        seconds = now - self._begun
        rate = (last - self._first[0]) / seconds
        parts = [f"{self.what}:", *(f"{value:,.0f} {name}" for name, value in counts.items())]
        parts.append(f"{rate:,.0f} {unit}/s")
        if fraction and fraction > self._first[1]:
            left = seconds * (1 - fraction) / (fraction - self._first[1])
            parts.append(f"{100 * fraction:.0f} %, {clock(left)} left")
        return "  ".join(parts)


def clock(seconds: float) -> str:
    """Write a time as hours, minutes and seconds."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


@contextmanager
def showing_line() -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Give `change(line)` for the line that changes, and `say(line)` for those that stay."""
    terminal = sys.stderr.isatty()
    last = -math.inf

    def change(line: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= (_TERMINAL if terminal else _PIPE):
            last = now
            _print(f"\r{line}\033[K" if terminal else f"{line}\n")

    def say(line: str) -> None:
        _print(f"\r{line}\033[K\n" if terminal else f"{line}\n")

    try:
        yield change, say
    finally:
        if terminal and last > -math.inf:
            _print("\n")


def _print(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


@contextmanager
def showing_download() -> Iterator[Callable[[int, int | None], None]]:
    """Give a function of the bytes that are here and the bytes in all."""
    with showing("downloading") as update:
        yield lambda done, total: update(done / total if total else None, MB=done / 1e6)
