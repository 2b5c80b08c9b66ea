"""Sum up and estimate the GPU time of benchmarks/paper.py.

A run that shares the GPU with others takes longer than alone. Its cost is its seconds divided by
the number of runs at a time.
"""

import statistics
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from paper_cells import TABLES, TASKS, Cell, Plan


class Row(NamedTuple):
    """The runs of one table."""

    table: str
    done: int
    left: int
    used: float
    """GPU minutes."""
    needed: float
    """GPU minutes, estimated."""


def rows(plan: Plan, *, at_once: int) -> Iterator[Row]:
    """Yield a row per table; a run of two tables counts in the first."""
    counted: set[str] = set()
    for table, cells in {"trials": _trials, **TABLES}.items():
        mine = {c.name: c for c in cells(_as_if_tuned(plan)) if c.name not in counted}
        counted |= mine.keys()
        done = [plan.found[name] for name in mine if name in plan.found]
        left = [cell for name, cell in mine.items() if name not in plan.found]
        needed = sum(expected_seconds(plan, cell) for cell in left) / at_once / 60
        yield Row(table, len(done), len(left), gpu_minutes(done), needed)


def gpu_minutes(results: Iterable[dict[str, Any]]) -> float:
    """Return the minutes of a GPU that results took; those of a CPU cost none."""
    return sum(r["seconds"] / r["at_once"] for r in results if r["device"] != "cpu") / 60


def expected_seconds(plan: Plan, cell: Cell) -> float:
    """Return the mean of the runs like this one, or the guess of paper.toml.

    The runs like it are those of the same task and fraction on a GPU, first of all in its column.
    """
    alike = [
        result
        for result in plan.found.values()
        if (result.get("task"), result.get("fraction")) == (cell.task, cell.fraction)
        and result["device"] != "cpu"
    ]
    same = [result for result in alike if result["column"] == cell.column]
    if alike:
        return statistics.mean(result["seconds"] for result in same or alike)
    return TASKS[cell.task]["seconds"] * (1.0 if cell.fraction == 1 else 0.5)


def _as_if_tuned(plan: Plan) -> Plan:
    """Return a plan that takes the first trial where trials are missing, to count its runs."""
    trials = {trial.name: {"dev": -1.0} for trial in _trials(plan)}
    return plan._replace(found=trials | plan.found)


def _trials(plan: Plan) -> list[Cell]:
    columns = dict.fromkeys([*plan.columns, "static", "elmo"])
    return [cell for task in plan.of(TASKS) for c in columns for cell in plan.trials(task, c)]


def format_estimate(plan: Plan, *, at_once: int) -> str:
    """Return the rows as a table of Markdown."""
    lines = [
        "| table | runs done | runs left | GPU minutes so far | GPU minutes left |",
        "|---|---|---|---|---|",
    ]
    every = list(rows(plan, at_once=at_once))
    total = Row(
        "all",
        sum(row.done for row in every),
        sum(row.left for row in every),
        sum(row.used for row in every),
        sum(row.needed for row in every),
    )
    lines += [
        f"| {r.table} | {r.done} | {r.left} | {r.used:.1f} | {r.needed:.0f} |"
        for r in [*every, total]
    ]
    return "\n".join(lines)
