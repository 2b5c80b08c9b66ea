"""The page of benchmarks/paper.py: every table from what was measured, gaps as gaps."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from grid import Cell, Results

SEEDS = (0, 1, 2)
MISSING = "missing"
PAPER2 = {"snli": (88.1, 89.1, 89.3, 89.5), "srl": (81.6, 84.1, 84.6, 84.8)}
PAPER3 = {"squad": (85.1, 85.6, 84.8), "snli": (88.9, 89.5, 88.7), "srl": (84.7, 84.3, 80.9)}


class Chosen(Protocol):
    """What paper.py knows of cells."""

    found: Results

    def cell(self, task: str, vectors: str, *more: str, **rest: Any) -> Cell:  # noqa: ANN401
        """Give the cell of a task with the settings that suited these vectors best."""
        ...


def page(chosen: Chosen, tasks: dict[str, Any]) -> str:
    """Print what is there."""
    parts = [
        _table1(chosen, tasks),
        _table2(chosen, tasks),
        _table3(chosen, tasks),
        _figure1(chosen, tasks),
        _updates(chosen, tasks),
        _figure2(chosen, tasks),
        _finetuned(chosen, tasks),
        _senses(chosen),
        _speech(chosen),
        _commands(chosen),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def _values(chosen: Chosen, key: str, cells: Sequence[Cell]) -> list[float]:
    kept = (chosen.found.get(cell.name) for cell in cells)
    return [row[key] for row in kept if row]


def _shown(values: Sequence[float]) -> str:
    if not values:
        return MISSING
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    few = f" ({len(values)} of {len(SEEDS)} seeds)" if len(values) < len(SEEDS) else ""
    return f"{statistics.mean(values):.1f}{spread}{few}"


def _seeds(chosen: Chosen, task: str, vectors: str, *more: str, **rest: float) -> list[Cell]:
    return [chosen.cell(task, vectors, *more, seed=seed, **rest) for seed in SEEDS]


def _reduction(before: float, after: float) -> str:
    return f"{100 * (after - before) / (100 - before):.1f} %"


def _head(title: str, table: str, *columns: str) -> list[str]:
    row = " | ".join(columns)
    rule = "|".join("---" for _ in columns)
    command = f"`python benchmarks/paper.py {table} RESULTS.json`"
    return [f"## {title}", "", command, "", f"| {row} |", f"|{rule}|"]


def _table1(chosen: Chosen, tasks: dict[str, Any]) -> Iterator[str]:
    yield from _head(
        "Table 1: with and without",
        "table1",
        "task (test score)",
        "nothing",
        "GloVe",
        "GloVe + ELMo",
        "errors fewer",
        "the paper",
        "errors fewer there",
        "seconds a run with ELMo",
    )
    reductions = []
    for task, known in tasks.items():
        cells = {v: _seeds(chosen, task, v) for v in ("none", "glove", "glove+elmo")}
        scores = {vectors: _values(chosen, "test", some) for vectors, some in cells.items()}
        fewer = MISSING
        if scores["glove"] and scores["glove+elmo"]:
            before, after = (statistics.mean(scores[v]) for v in ("glove", "glove+elmo"))
            fewer = _reduction(before, after)
            if "paper" in known:
                reductions.append((after - before) / (100 - before))
        there = known.get("paper")
        seconds = _values(chosen, "seconds", cells["glove+elmo"])
        row = [
            f"{task}: {known['title']}",
            *(_shown(values) for values in scores.values()),
            fewer,
            f"{there[0]:g} -> {there[1]:g}" if there else "",
            _reduction(*there) if there else "",
            f"{statistics.mean(seconds):.0f}" if seconds else "",
        ]
        yield f"| {' | '.join(row)} |"
    if reductions:
        mean = 100 * statistics.mean(reductions)
        yield f"\nMean over {len(reductions)} of the paper's six tasks: {mean:.1f} % fewer errors."


def _table2(chosen: Chosen, tasks: dict[str, Any]) -> Iterator[str]:
    yield from _head(
        "Table 2: which layers (dev score)",
        "table2",
        "task",
        "GloVe",
        "last only",
        "all, lambda 1",
        "all, lambda 0.001",
        "the paper",
    )
    choices = ("elmo.last_only=true", "elmo.penalty=1.0", "elmo.penalty=0.001")
    for task, there in PAPER2.items():
        groups = [_seeds(chosen, task, "glove")]
        groups += [_seeds(chosen, task, "glove+elmo", choice) for choice in choices]
        found = [_shown(_values(chosen, "dev", cells)) for cells in groups]
        yield f"| {task} | {' | '.join(found)} | {' / '.join(map(str, there))} |"


def _table3(chosen: Chosen, tasks: dict[str, Any]) -> Iterator[str]:
    yield from _head(
        "Table 3: where ELMo goes (dev score)", "table3", "task", "input", "both", "output",
        "the paper",
    )  # fmt: skip
    for task, there in PAPER3.items():
        groups = [
            _seeds(chosen, task, "glove+elmo", f"elmo.where={where}")
            for where in ("input", "both", "output")
        ]
        found = [_shown(_values(chosen, "dev", cells)) for cells in groups]
        yield f"| {task} | {' | '.join(found)} | {' / '.join(map(str, there))} |"


def _figure1(chosen: Chosen, tasks: dict[str, Any]) -> Iterator[str]:
    fractions = (0.001, 0.01, 0.1, 1.0)
    columns = [f"{100 * fraction:g} %" for fraction in fractions]
    yield from _head(
        "Figure 1: a fraction of the examples (test score)", "figure1", "task", "vectors", *columns
    )
    for task in ("snli", "srl"):
        for vectors in ("glove", "glove+elmo"):
            found = [
                _shown(_values(chosen, "test", _seeds(chosen, task, vectors, fraction=fraction)))
                for fraction in fractions
            ]
            yield f"| {task} | {vectors} | {' | '.join(found)} |"


def _updates(chosen: Chosen, tasks: dict[str, Any]) -> Iterator[str]:
    """How soon a run with ELMo is better than one without ever gets."""
    yield from _head(
        "Updates until the baseline is passed",
        "table1",
        "task",
        "best dev score with GloVe",
        "its update",
        "update of the run with ELMo that passes it",
        "fewer",
    )
    for task in ("snli", "srl"):
        base, elmo = (
            chosen.found.get(chosen.cell(task, vectors, seed=0).name)
            for vectors in ("glove", "glove+elmo")
        )
        if not base or not elmo:
            yield f"| {task} | {MISSING} | | | |"
            continue
        at, best = max(base["curve"], key=lambda point: point[1])
        passed = next((step for step, score in elmo["curve"] if score > best), None)
        fewer = f"{100 * (1 - passed / at):.0f} %" if passed else "never"
        yield f"| {task} | {best:.1f} | {at:,} | {passed or '':,} | {fewer} |"


def _figure2(chosen: Chosen, tasks: dict[str, Any]) -> Iterator[str]:
    yield from _head(
        "Figure 2: what the layers weigh (seed 0)", "table1", "task", "place", "characters",
        "LSTM 1", "LSTM 2", "gamma",
    )  # fmt: skip
    for task in tasks:
        row = chosen.found.get(chosen.cell(task, "glove+elmo", seed=0).name)
        for place, mix in (row or {"layers": {MISSING: None}})["layers"].items():
            numbers = [*mix["shares"], mix["gamma"]] if mix else []
            shown = " | ".join(f"{number:.2f}" for number in numbers) if mix else "| | |"
            yield f"| {task} | {place} | {shown} |"


def _finetuned(chosen: Chosen, tasks: dict[str, Any]) -> Iterator[str]:
    yield from _head(
        "Fine-tuned for one pass on the task's own text (test score)",
        "finetuned",
        "task",
        "perplexity before",
        "after",
        "GloVe + ELMo",
        "GloVe + ELMo fine-tuned",
    )
    for task in ("snli", "ner"):
        tuned = chosen.found.get(f"fine-tuning, {task}")
        told = f"{tuned['before']:.1f} | {tuned['after']:.1f}" if tuned else f"{MISSING} | "
        found = [
            _shown(_values(chosen, "test", _seeds(chosen, task, vectors)))
            for vectors in ("glove+elmo", f"glove+elmo:{task}")
        ]
        yield f"| {task} | {told} | {' | '.join(found)} |"


def _senses(chosen: Chosen) -> Iterator[str]:
    yield from _head(
        "Table 5: word senses by layer (F1)", "table5", "layer", "semeval2007", "senseval2"
    )
    row = chosen.found.get("senses")
    if not row:
        yield f"| {MISSING} | | |"
        return
    tests = row["tests"]
    for layer, second in tests["senseval2"].items():
        mark = ", chosen" if layer == row["chosen"] else ""
        first = tests["semeval2007"][layer]
        yield f"| {layer}{mark} | {100 * first['f1']:.1f} | {100 * second['f1']:.1f} |"
    yield "\nThe paper, on all of Raganato's sets: first layer 67.4, second 69.0."


def _speech(chosen: Chosen) -> Iterator[str]:
    yield from _head("Table 6: parts of speech by layer (accuracy)", "table6", "layer", "test")
    row = chosen.found.get("parts of speech")
    for found in row["layers"] if row else []:
        yield f"| {found['layer']} | {100 * found['accuracy']:.1f} |"
    yield "| missing | |" if not row else "\nThe paper, on the WSJ: first layer 97.3, second 96.8."


def _commands(chosen: Chosen) -> Iterator[str]:
    yield "## The command of every number\n"
    for name, row in chosen.found.items():
        yield f"- {name}: `{row['command']}`"
