"""Look up results of benchmarks/paper.py, for its page and its figures."""

import statistics
from collections.abc import Sequence
from typing import Any, Protocol

from grid import Cell, Results

SEEDS = (0, 1, 2)
FRACTIONS = (0.001, 0.01, 0.1, 1.0)
LONGER_TASKS = ("squad", "snli", "srl")
LAYERS = ("characters", "LSTM 1", "LSTM 2")
NAMES = {"none": "no vectors", "glove": "GloVe", "glove+elmo": "GloVe + ELMo"}


class Chosen(Protocol):
    """What paper.py knows of cells."""

    found: Results

    def cell(self, task: str, vectors: str, *more: str, **rest: Any) -> Cell:  # noqa: ANN401
        """Give the cell of a task with the settings that suited these vectors best."""
        ...

    def fraction(self, task: str, vectors: str, fraction: float, seed: int) -> Cell:
        """Give the cell that learns from a fraction of the examples."""
        ...

    def longer(self, task: str, seed: int) -> Cell:
        """Give the cell without ELMo that reads the examples more often."""
        ...

    def trials(self, task: str, vectors: str) -> list[list[Cell]]:
        """Give the seeds of every trial of a task."""
        ...


def values(chosen: Chosen, key: str, cells: Sequence[Cell]) -> list[Any]:
    """Give one number, or all scores, of each of those cells that are there."""
    kept = (chosen.found.get(cell.name) for cell in cells)
    return [row[key] for row in kept if row]


def seeds(chosen: Chosen, task: str, vectors: str, *more: str) -> list[Cell]:
    """Give a cell with each seed."""
    return [chosen.cell(task, vectors, *more, seed=seed) for seed in SEEDS]


def part(chosen: Chosen, task: str, vectors: str, fraction: float) -> list[float]:
    """Give the test scores of the runs that learned from a fraction of the examples."""
    cells = [chosen.fraction(task, vectors, fraction, seed) for seed in SEEDS]
    return values(chosen, "test", cells)


def mixes(chosen: Chosen, task: str) -> dict[str, list[list[float]]]:
    """Give what the layers weigh, and gamma behind it, for each place and each seed."""
    result: dict[str, list[list[float]]] = {}
    for cell in seeds(chosen, task, "glove+elmo"):
        for place, mix in chosen.found.get(cell.name, {"layers": {}})["layers"].items():
            weights = mix["weights"] if "weights" in mix else mix["shares"]  # of earlier results
            result.setdefault(place, []).append([*weights, mix["gamma"]])
    return result


def means(rows: Sequence[Sequence[float]]) -> list[float]:
    """Give the mean of each column."""
    return [statistics.mean(column) for column in zip(*rows, strict=True)]


def fewer(before: float, after: float) -> float:
    """Give by how many per cent the errors are fewer."""
    return 100 * (after - before) / (100 - before)
