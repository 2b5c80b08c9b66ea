"""Refuse results of benchmarks/paper.py that must not stand in one table."""

from collections.abc import Iterable
from typing import Any

from grid import Results
from paper_cells import COLUMNS, TABLES, Cell, Plan, recipe_name, recipe_sha256

ADVICE = "use another folder for results"


def describe(cell: Cell, model: str) -> dict[str, Any]:
    """Return what makes two runs of a cell the same."""
    return {
        "recipe": recipe_name(cell.task),
        "recipe_sha256": recipe_sha256(cell.task),
        "settings": cell.all_settings(),
        "model": None if cell.column in ("static", "glove") else model,
    }


def check_results(plan: Plan, model: str) -> None:
    """Refuse results of another protocol, data, vectors or biLM in any table."""
    everything = plan._replace(columns=tuple(COLUMNS))
    for cells in TABLES.values():
        check_cells(cells(everything), plan.found, model)
    check_sources(plan.found)


def check_cells(cells: Iterable[Cell], found: Results, model: str) -> None:
    """Refuse results of another protocol."""
    for cell in cells:
        result, asked = found.get(cell.name), describe(cell, model)
        if result is None:
            continue
        changed = [key for key in asked if result.get(key) != asked[key]]
        if changed:
            raise SystemExit(
                f"{cell.name}: its result was made with {changed[0]} {result.get(changed[0])}, the "
                f"protocol now asks for {asked[changed[0]]}; {ADVICE}"
            )


def check_finetuned(absent: Iterable[str], found: Results) -> None:
    """Refuse to fine-tune a biLM anew for a task that has results with the former one."""
    for task in absent:
        if any(r.get("task") == task and r.get("column") == "finetuned" for r in found.values()):
            raise SystemExit(
                f"there are results with a biLM fine-tuned for {task}, which is not in --place: "
                f"copy its folder finetuned/{task} there, remove these results, or {ADVICE}"
            )


def check_sources(found: Results) -> None:
    """Refuse runs of one column that read other data, word vectors or biLMs."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for result in found.values():
        if "sources" not in result:
            continue
        other = first.setdefault((result["task"], result["column"]), result)
        for key in result["sources"].keys() | other["sources"].keys():
            if result["sources"].get(key) != other["sources"].get(key):
                raise SystemExit(
                    f"{result['name']}: another {key} than that of {other['name']}, by its "
                    f"SHA-256; remove the results of the wrong one, or {ADVICE}"
                )
