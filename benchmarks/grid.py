"""Run many commands, several at once, and keep the result of each in a file of its own.

    RESULTS/ner-elmo-6f1c0a52b9d3.json    one result, written when its command has ended

Results that the folder already holds are not computed again, so a stopped grid continues, also on
another machine that has a copy of the folder.
"""

import contextlib
import hashlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from data_folder import data_path
from elmore_command import elmore_command

from elmore import atomic

Results = dict[str, dict[str, Any]]
"""What is known of each cell, by its name."""

_SAVING = 60.0  # seconds that a stopped training may take to save itself
_DIVERGED = re.compile(r"diverged|not finite")


class Job(NamedTuple):
    """A command, and how its result is read."""

    name: str
    words: list[str]
    """After `elmore`."""
    read: Callable[[Any], dict[str, Any]]
    """From the JSON that it prints to the result."""
    facts: dict[str, Any]
    """Stored with the result."""
    seconds_path: Path | None = None
    """Where the seconds of a run that was stopped are kept, until it has ended."""
    done: Callable[[], None] = lambda: None
    """Called when the result is stored."""


def run(
    ready: Callable[[Results], Sequence[Job]],
    folder: Path,
    *,
    at_once: int,
    seconds: float | None = None,
) -> Results:
    """Run jobs until none is ready, or stop after `seconds`.

    `ready` returns the jobs that can run, given the results so far; those with a result are
    skipped. What still runs at the end gets a SIGTERM, on which a training saves itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = read(folder)
    end = float("inf") if seconds is None else time.monotonic() + seconds
    begun: set[str] = set()
    with ThreadPoolExecutor(at_once) as pool, _children() as started:
        running: dict[Future, Job] = {}
        while True:
            for job in ready(found):
                if len(running) < at_once and job.name not in begun and job.name not in found:
                    begun.add(job.name)
                    running[pool.submit(_run_job, job, started)] = job
            left = end - time.monotonic()
            if not running or left <= 0:
                break
            timeout = None if seconds is None else left
            for future in wait(running, timeout=timeout, return_when=FIRST_COMPLETED).done:
                _keep(running.pop(future), future, found, folder)
        _stop(started)
        for future, job in running.items():
            _keep(job, future, found, folder)
    return found


def read(folder: Path) -> Results:
    """Return the results of a folder."""
    results = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    return {result["name"]: result for result in results}


def file_stem(name: str) -> str:
    """Return a short file name for a cell: its first two words and a hash of all."""
    words = re.findall(r"[A-Za-z0-9]+", name)[:2]
    return "-".join([*words, hashlib.sha256(name.encode()).hexdigest()[:12]])


def show_command(words: Sequence[str]) -> str:
    """Return the command with $ELMORE_DATA in place of the path."""
    return " ".join(["elmore", *words]).replace(str(data_path()), "$ELMORE_DATA")


def _run_job(job: Job, started: list[subprocess.Popen]) -> dict[str, Any]:
    start_time = time.perf_counter()
    command = elmore_command(job.words)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started.append(process)
    out, err = process.communicate()
    seconds = time.perf_counter() - start_time
    if job.seconds_path is not None:
        before = job.seconds_path
        seconds += float(before.read_text()) if before.exists() else 0.0
        before.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(before, f"{seconds:.1f}".encode())
    facts = {"name": job.name, **job.facts, "command": show_command(job.words)}
    facts["seconds"] = round(seconds, 1)
    if process.returncode == 0:
        try:
            return {**facts, **job.read(json.loads(out))}
        except (OSError, ValueError, LookupError) as error:  # the other commands go on
            raise RuntimeError(f"its result cannot be read ({error})") from error
    last = (err.strip().splitlines() or ["no message"])[-1]
    if process.returncode == 1 and _DIVERGED.search(last):
        return {**facts, "failed": last}
    raise RuntimeError(f"exit {process.returncode}: {last}")


def _keep(job: Job, future: Future, found: Results, folder: Path) -> None:
    try:
        result = future.result()
    except RuntimeError as error:
        print(f"{job.name}: {error}", file=sys.stderr)
        return
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    atomic.write(folder / f"{file_stem(job.name)}.json", f"{text}\n".encode())
    found[job.name] = result
    job.done()
    print(f"{job.name}: {result['seconds']} s", file=sys.stderr)


@contextlib.contextmanager
def _children() -> Iterator[list[subprocess.Popen]]:
    """Yield a list for processes, none of which outlives it."""
    started: list[subprocess.Popen] = []
    try:
        yield started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)


def _stop(started: Sequence[subprocess.Popen]) -> None:
    """Ask processes to save themselves and end; kill those that take too long."""
    for process in started:
        process.send_signal(signal.SIGTERM)
    end = time.monotonic() + _SAVING
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - time.monotonic()))
        process.kill()
