"""Progress of a download on stderr: a bar on a terminal, plain lines in a pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS = 5.0  # between two plain lines


@contextmanager
def showing_progress() -> Iterator[Callable[[int, int | None], None]]:
    """Give a function of (bytes here, bytes in all); nothing is shown until it is called."""
    if sys.stderr.isatty():
        with _bar() as update:
            yield update
    else:
        yield _plain_lines()


@contextmanager
def _bar() -> Iterator[Callable[[int, int | None], None]]:
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(
        *Progress.get_default_columns()[:2], *columns, console=Console(stderr=True)
    ) as bar:
        tasks = []

        def update(done: int, total: int | None) -> None:
            if not tasks:
                tasks.append(bar.add_task("downloading", total=total))
            bar.update(tasks[0], completed=done, total=total)

        yield update


def _plain_lines() -> Callable[[int, int | None], None]:
    begun = last = time.monotonic()
    first = None

    def update(done: int, total: int | None) -> None:
        nonlocal last, first
        first = done if first is None else first
        now = time.monotonic()
        if now - last >= _SECONDS:
            rate = (done - first) / (now - begun) / 1e6
            left = f", {(total - done) / 1e6 / rate:.0f} s left" if total and rate else ""
            print(f"downloading: {done / 1e6:.1f} MB at {rate:.1f} MB/s{left}", file=sys.stderr)
            last = now

    return update
