"""Sum up the cost of the runs of benchmarks/paper.py: seconds, updates, hours per table."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from grid import Results


class Table(NamedTuple):
    """The runs of one table."""

    name: str
    there: int
    asked: int
    """0: all that is there was asked for."""
    gpu: float
    """Hours of its runs on a GPU, added up."""
    cpu: float


def tables(found: Results, cells: dict[str, list[str]]) -> Iterator[Table]:
    """Yield a row per table, and one for all runs, including those that no table uses."""
    for table, names in cells.items():
        distinct = dict.fromkeys(names)
        rows = [found[name] for name in distinct if name in found]
        yield Table(table, len(rows), len(distinct), *_hours(rows))
    yield Table("all", len(found), 0, *_hours(list(found.values())))


def runs(rows: Sequence[dict[str, Any]]) -> tuple[list[float], list[int]]:
    """Return the seconds and the updates of runs."""
    return [row["seconds"] for row in rows], [row["curve"][-1][0] for row in rows]


def _hours(rows: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the hours on GPU and CPU; a command without a CPU device ran on a GPU."""
    cpu = sum(row["seconds"] for row in rows if "--device=cpu" in row["command"])
    return (sum(row["seconds"] for row in rows) - cpu) / 3600, cpu / 3600
