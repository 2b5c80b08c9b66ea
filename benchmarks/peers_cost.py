"""Measure what a model costs: words a second, seconds to the first vector, megabytes.

Words a second are those of text vectors, in CPU seconds, so that other load counts little; pass
`OMP_NUM_THREADS=1`. The models take turns (`contestants.py`), each on the next part of the text, so
that no cache has seen these very sentences; the result is the median over the parts. The first
vector is that of one sentence in a new process: the median of some processes.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import contestants

PART = 64  # sentences between two turns
ROUNDS = 7
STARTS = 3
TURN = """
import sys
sys.path.insert(0, {folder!r})
import itertools, peer_models
kind, model = arguments
peer = peer_models.KINDS[kind](model)
clock = time.process_time
parts = itertools.cycle(texts)
run = lambda texts: peer.encode(next(parts))
"""
FIRST = """
import sys
sys.path.insert(0, {folder!r})
import peer_models
peer_models.KINDS[sys.argv[1]](sys.argv[2]).encode(["The cat sat on the mat ."])
"""


class Runnable(NamedTuple):
    """A model in its environment."""

    python: Path
    kind: str
    model: str


def read_parts() -> list[list[str]]:
    """Return tokenized sentences in parts; the first part is for warming up."""
    sentences = (words for words in contestants.real_sentences() if len(words) > 1)
    texts = [" ".join(words) for words in islice(sentences, PART * (ROUNDS + 1))]
    return [texts[first : first + PART] for first in range(0, len(texts), PART)]


def measure_speed(models: Mapping[str, Runnable]) -> dict[str, dict[str, float]]:
    """Return the median words a second of each model, and the slowest and fastest part."""
    parts = read_parts()
    words = [sum(len(text.split()) for text in part) for part in parts[1:]]
    folder = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as place:
        texts = Path(place) / "texts.json"
        texts.write_text(json.dumps(parts), encoding="utf-8")
        turns = {
            name: contestants.Contestant(
                TURN.format(folder=folder), model.python, (model.kind, model.model)
            )
            for name, model in models.items()
        }
        seconds = contestants.take_turns(turns, texts, rounds=ROUNDS, runs=1)
    speeds = {
        name: [count / spent for count, spent in zip(words, times, strict=True)]
        for name, times in seconds.items()
    }
    return {
        name: {"median": statistics.median(each), "low": min(each), "high": max(each)}
        for name, each in speeds.items()
    }


def measure_start(models: Mapping[str, Runnable]) -> dict[str, dict[str, float]]:
    """Return the median seconds of new processes that compute one vector."""
    code = FIRST.format(folder=str(Path(__file__).parent))
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for _ in range(STARTS):
        for name, model in models.items():
            runs[name].append(_run_once([model.python, "-c", code, model.kind, model.model]))
    return {
        name: {
            "cpu": statistics.median(cpu for cpu, _ in spent),
            "wall": statistics.median(wall for _, wall in spent),
        }
        for name, spent in runs.items()
    }


def _run_once(command: Sequence[object]) -> tuple[float, float]:
    """Run a command; return its seconds of CPU, and those that passed."""
    start, before = time.perf_counter(), os.times()
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user
    return cpu - before.children_system, wall


def measure_size(site: Path, model: Path) -> dict[str, float]:
    """Return the megabytes of a model, and of the packages without it."""
    everything = _megabytes(site, leave_out=("pip", "setuptools", "_distutils_hack"))
    size = _megabytes(model)
    inside = size if model.is_relative_to(site) else 0
    return {"model": size, "packages": everything - inside}


def _megabytes(path: Path, *, leave_out: tuple[str, ...] = ()) -> float:
    """Return the size of a file, or of the files of a folder."""
    if path.is_file():
        return path.stat().st_size / 1e6
    files = (file for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    return sum(
        file.stat().st_size / 1e6
        for file in files
        if file.suffix != ".pyc"
        and not file.relative_to(path).parts[0].startswith(leave_out or "/")
    )
