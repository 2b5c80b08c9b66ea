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
        """Return the cell of a task with the settings that suited these vectors best."""
        ...

    def fraction(self, task: str, vectors: str, fraction: float, seed: int) -> Cell:
        """Return the cell that trains on a fraction of the examples."""
        ...

    def longer(self, task: str, seed: int) -> Cell:
        """Return the cell without ELMo that trains for more epochs."""
        ...

    def trials(self, task: str, vectors: str) -> list[list[Cell]]:
        """Return every trial of a task with every seed."""
        ...


def values(chosen: Chosen, key: str, cells: Sequence[Cell]) -> list[Any]:
    """Return one score, or all scores, of each cell with a result."""
    kept = (chosen.found.get(cell.name) for cell in cells)
    return [row[key] for row in kept if row]


def seeds(chosen: Chosen, task: str, vectors: str, *more: str) -> list[Cell]:
    """Return a cell with each seed."""
    return [chosen.cell(task, vectors, *more, seed=seed) for seed in SEEDS]


def part(chosen: Chosen, task: str, vectors: str, fraction: float) -> list[float]:
    """Return the test scores of the runs that learned from a fraction of the examples."""
    cells = [chosen.fraction(task, vectors, fraction, seed) for seed in SEEDS]
    return values(chosen, "test", cells)


def mixes(chosen: Chosen, task: str) -> dict[str, list[list[float]]]:
    """Return the layer weights, followed by gamma, for each insertion point and seed."""
    result: dict[str, list[list[float]]] = {}
    for cell in seeds(chosen, task, "glove+elmo"):
        for place, mix in chosen.found.get(cell.name, {"layers": {}})["layers"].items():
            weights = mix["weights"] if "weights" in mix else mix["shares"]  # of earlier results
            result.setdefault(place, []).append([*weights, mix["gamma"]])
    return result


def means(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of each column."""
    return [statistics.mean(column) for column in zip(*rows, strict=True)]


def fewer(before: float, after: float) -> float:
    """Return the relative reduction of the error in percent."""
    return 100 * (after - before) / (100 - before)
