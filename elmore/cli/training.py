"""Training as a person likes to watch it: one line that changes, a line for each evaluation."""

import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from elmore.cli.progress import clock, showing_line

if TYPE_CHECKING:
    from elmore.train.fit import Report

_HEARD = ("elmore.lm.finetune", "elmore.tasks.timing", "elmore.weights.fetch")


def speaks() -> bool:
    """Tell whether this is the one process of several that speaks."""
    return os.environ.get("RANK", "0") == "0"


def follow(what: str, reports: Iterable["Report"], *, of_text: bool = True) -> "Report | None":
    """Show reports as they come; the last one comes back. `of_text`: the loss has a perplexity."""
    report = None
    with showing_line() as (change, say), _heard(say):
        left = _Left()
        for report in reports:
            if not speaks():
                continue
            change(f"{what}: {_line(report, of_text)}  {left.after(report)}")
            if report.scores:
                scores = "  ".join(f"{name} {value:.4g}" for name, value in report.scores.items())
                say(f"update {report.step}: {scores}{'  (best so far)' if report.improved else ''}")
    return report


def end(last: "Report | None", out: Path) -> None:
    """Say how it ended; a run that was told to stop exits as the signal would have it."""
    if last is None:
        _say(f"{out} was finished before: nothing was left to do")
    elif last.stop_reason.startswith("SIG"):
        _say(
            f"stopped by {last.stop_reason} after update {last.step}, which is saved; continue "
            "with the same command and --resume"
        )
        raise typer.Exit(128 + signal.Signals[last.stop_reason])
    elif last.stop_reason:
        _say(f"stopped at update {last.step}: {last.stop_reason}")


def _say(sentence: str) -> None:
    if speaks():
        print(f"elmore: {sentence}", file=sys.stderr)


def _line(report: "Report", of_text: bool) -> str:
    numbers = report.metrics
    parts = [
        f"{report.step:,} of {report.num_steps:,}",
        f"loss {numbers['loss']:.3f}",
        *([f"perplexity {math.exp(min(numbers['loss'], 50.0)):,.1f}"] if of_text else []),
        f"lr {numbers['lr']:.2g}",
        f"{numbers['per_second']:,.0f} {report.unit}/s",
    ]
    if "max_gib" in numbers:
        parts.append(f"{numbers['max_gib']:.1f} GB")
    return "  ".join(parts)


@contextmanager
def _heard(say: Callable[[str], None]) -> Iterator[None]:
    """Say what takes its time between two updates, as some parts of the library log it."""
    loggers, handler = [logging.getLogger(name) for name in _HEARD], logging.Handler()
    handler.emit = lambda record: say(record.getMessage()) if speaks() else None
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


class _Left:
    """The time left, from the speed since this process began."""

    def __init__(self) -> None:
        import time

        self._now = time.monotonic
        self._begun: tuple[int, float] | None = None

    def after(self, report: "Report") -> str:
        if self._begun is None or report.step < self._begun[0]:  # of another stage
            self._begun = (report.step, self._now())
            return ""
        step, begun = self._begun
        rate = (self._now() - begun) / max(1, report.step - step)
        return f"{clock(rate * (report.num_steps - report.step))} left"
