"""Show the progress of training: one line that is rewritten, and a line for each evaluation."""

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

from elmore.cli.progress import StatusLine, clock, show_status

if TYPE_CHECKING:
    from elmore.train.fit import Report

_LOGGERS = (
    "elmore.lm.finetune",
    "elmore.lm.parents",
    "elmore.tasks.data.datasets",
    "elmore.tasks.train",
    "elmore.weights.fetch",
)


def is_main_process() -> bool:
    """Return whether this process of a distributed run prints."""
    return os.environ.get("RANK", "0") == "0"


class ReportPrinter:
    """Prints reports: one line that is rewritten, and a line for each evaluation."""

    def __init__(self, status: StatusLine, *, show_perplexity: bool) -> None:
        self._status, self._show_perplexity = status, show_perplexity
        self._remaining = _RemainingTime()
        self.last: Report | None = None

    def add(self, what: str, report: "Report") -> None:
        """Print a report of the training that `what` describes."""
        self.last = report
        if not is_main_process():
            return
        line = _line(report, self._show_perplexity)
        self._status.write(f"{what}: {line}  {self._remaining.after(report)}")
        if report.scores:
            scores = "  ".join(f"{name} {value:.4g}" for name, value in report.scores.items())
            best = "  (best so far)" if report.improved else ""
            self._status.say(f"update {report.step}: {scores}{best}")
        if report.stop_reason and not report.stop_reason.startswith("SIG"):
            self._status.say(f"stopped at update {report.step}: {report.stop_reason}")


@contextmanager
def printing_reports(*, show_perplexity: bool = True) -> Iterator[ReportPrinter]:
    """Yield a printer of reports, and print what the library logs in between."""
    with show_status() as status, _forward_logs(status.say):
        yield ReportPrinter(status, show_perplexity=show_perplexity)


def watch(
    what: str, reports: Iterable["Report"], *, show_perplexity: bool = True
) -> "Report | None":
    """Print reports as they come, and return the last one."""
    with printing_reports(show_perplexity=show_perplexity) as printer:
        for report in reports:
            printer.add(what, report)
    return printer.last


def report_end(last: "Report | None", out: Path) -> None:
    """Exit with 128 + N after signal N; say so if there was nothing to train."""
    if last is None:
        _print_line(f"{out} is already finished: there is nothing to do")
    elif last.stop_reason.startswith("SIG"):
        _print_line(
            f"stopped by {last.stop_reason} after update {last.step}, which is saved; continue "
            "with the same command and --resume"
        )
        raise typer.Exit(128 + signal.Signals[last.stop_reason])


def _print_line(sentence: str) -> None:
    if is_main_process():
        print(f"elmore: {sentence}", file=sys.stderr)


def _line(report: "Report", show_perplexity: bool) -> str:
    numbers = report.metrics
    parts = [
        f"{report.step:,} of {report.num_steps:,}",
        f"loss {numbers['loss']:.3f}",
        *([f"perplexity {math.exp(min(numbers['loss'], 50.0)):,.1f}"] if show_perplexity else []),
        f"lr {numbers['lr']:.2g}",
        f"{numbers['per_second']:,.0f} {report.unit}/s",
    ]
    if "auxiliary_loss" in numbers:
        parts.append(f"auxiliary loss {numbers['auxiliary_loss']:.3f}")
    if "max_gib" in numbers:
        parts.append(f"{numbers['max_gib']:.1f} GB")
    return "  ".join(parts)


@contextmanager
def _forward_logs(write_line: Callable[[str], None]) -> Iterator[None]:
    """Print what these modules log, such as slow steps between two updates."""
    loggers, handler = [logging.getLogger(name) for name in _LOGGERS], logging.Handler()
    handler.emit = lambda record: write_line(record.getMessage()) if is_main_process() else None
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


class _RemainingTime:
    """Estimates the remaining time from the speed since this process started."""

    def __init__(self) -> None:
        import time

        self._now = time.monotonic
        self._started: tuple[int, float] | None = None

    def after(self, report: "Report") -> str:
        if self._started is None or report.step < self._started[0]:  # a new stage
            self._started = (report.step, self._now())
            return ""
        step, started = self._started
        seconds = (self._now() - started) / max(1, report.step - step)
        return f"{clock(seconds * (report.num_steps - report.step))} left"
