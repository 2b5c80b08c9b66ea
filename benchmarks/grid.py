"""Train the cells of a table, several at once, and store each result as soon as it is done.

A file of results is JSON: it maps the name of a cell to its result. Cells that the file already
holds are not run again, so a stopped grid can be continued.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from elmore import atomic

Results = dict[str, Any]


class Cell(NamedTuple):
    """One training of a task model."""

    task: str
    vectors: str
    """none, glove, elmo or glove+elmo; `glove+elmo:TASK` has the biLM fine-tuned on its text."""
    settings: tuple[str, ...] = ()
    """Over the recipe."""
    seed: int = 0
    fraction: float = 1.0
    """Of the training examples."""

    @property
    def name(self) -> str:
        """The key under which the result is kept."""
        part = () if self.fraction == 1 else (f"{self.fraction:g} of the examples",)
        return ", ".join([self.task, self.vectors, *self.settings, *part, f"seed {self.seed}"])


class Job(NamedTuple):
    """A command and what is to be read when it is done."""

    name: str
    words: list[str]
    """After `elmore`."""
    read: Callable[[Any], dict[str, Any]]
    """From the JSON it prints to what is kept."""


def run(jobs: Sequence[Job], results: Path, *, at_once: int, seconds: float | None) -> Results:
    """Run them; after `seconds` begin nothing more and stop what still runs."""
    result = read(results)
    end = float("inf") if seconds is None else time.monotonic() + seconds
    print(f"{len(jobs)} to run, {at_once} at once", file=sys.stderr)
    with ThreadPoolExecutor(at_once) as pool, _children() as started:
        waiting = {pool.submit(_done, job, started, end): job for job in jobs}
        while waiting and time.monotonic() < end:
            timeout = None if seconds is None else max(0.0, end - time.monotonic())
            for future in wait(waiting, timeout=timeout, return_when=FIRST_COMPLETED).done:
                _keep(waiting.pop(future), future, result, results)
        pool.shutdown(wait=False, cancel_futures=True)
    return result


def read(results: Path) -> Results:
    """Return the results so far."""
    return json.loads(results.read_text()) if results.exists() else {}


def _done(job: Job, started: list[subprocess.Popen], end: float) -> dict[str, Any]:
    if time.monotonic() >= end:
        raise TimeoutError
    begun = time.perf_counter()
    words = [sys.executable, "-m", "elmore", *job.words]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started.append(process)
    out, err = process.communicate()
    if process.returncode:
        said = err.strip().splitlines()[-1:] or ["nothing said"]
        raise RuntimeError(f"exit {process.returncode}: {said[0]}")
    seconds = round(time.perf_counter() - begun, 1)
    return {"command": named(job.words), "seconds": seconds, **job.read(json.loads(out))}


def named(words: Sequence[str]) -> str:
    """Return the command with $ELMORE_DATA in place of the path."""
    return " ".join(["elmore", *words]).replace(os.environ["ELMORE_DATA"], "$ELMORE_DATA")


def _keep(job: Job, future: Future, found: Results, results: Path) -> None:
    try:
        found[job.name] = future.result()
    except (RuntimeError, TimeoutError) as error:
        print(f"{job.name}: {error or 'no time left'}", file=sys.stderr)
        return
    atomic.write(results, json.dumps(found, indent=1).encode())
    print(f"{job.name}: {found[job.name]['seconds']} s", file=sys.stderr)


@contextlib.contextmanager
def _children() -> Iterator[list[subprocess.Popen]]:
    """Yield a list for processes, which are ended with it."""
    started: list[subprocess.Popen] = []
    try:
        yield started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
