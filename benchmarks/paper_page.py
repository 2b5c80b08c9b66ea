"""Print the page of benchmarks/paper.py: every table, with missing results marked."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import paper_cost
from grid import Cell
from paper_found import (
    FRACTIONS,
    LAYERS,
    LONGER_TASKS,
    NAMES,
    SEEDS,
    Chosen,
    fewer,
    means,
    mixes,
    part,
    seeds,
    values,
)

MISSING = "missing"
PAPER2 = {"snli": (88.1, 89.1, 89.3, 89.5), "srl": (81.6, 84.1, 84.6, 84.8)}
PAPER3 = {"squad": (85.1, 85.6, 84.8), "snli": (88.9, 89.5, 88.7), "srl": (84.7, 84.3, 80.9)}
Tasks = dict[str, Any]


def page(
    chosen: Chosen, tasks: Tasks, cells: dict[str, list[str]], *, source: Path, at_once: int
) -> str:
    """Return the page of all results so far; `cells` maps a table to the names of its cells."""
    beside = f" --at-once {at_once}" if at_once > 1 else ""
    head = [
        f"# The tables of the paper: {source.stem}",
        "",
        f"Printed by `python benchmarks/paper.py page {source}{beside}`.",
        "Means over three seeds ± the standard deviation. Missing seeds are marked.",
    ]
    parts = [
        head,
        _table1(chosen, tasks),
        _sizes(tasks),
        _others(chosen, tasks),
        _longer(chosen, tasks),
        _table2(chosen, tasks),
        _table3(chosen, tasks),
        _figure1(chosen, tasks),
        _updates(chosen, tasks),
        _figure2(chosen, tasks),
        _finetuned(chosen, tasks),
        _senses(chosen),
        _speech(chosen),
        _trials(chosen, tasks),
        _cost(chosen, tasks, cells, at_once),
        _commands(chosen),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def _shown(numbers: Sequence[float], digits: int = 1) -> str:
    if not numbers:
        return MISSING
    spread = f" ± {statistics.stdev(numbers):,.{digits}f}" if len(numbers) > 1 else ""
    return f"{statistics.mean(numbers):,.{digits}f}{spread}{_few(numbers)}"


def _few(found: Sequence[Any]) -> str:
    return f" ({len(found)} of {len(SEEDS)} seeds)" if len(found) < len(SEEDS) else ""


def _head(title: str, table: str, *columns: str) -> list[str]:
    command = f"`python benchmarks/paper.py {table} RESULTS.json`"
    return [f"## {title}", "", command, "", *_columns(*columns)]


def _columns(*columns: str) -> list[str]:
    return [_row(*columns), f"|{'|'.join('---' for _ in columns)}|"]


def _row(*parts: str) -> str:
    return f"| {' | '.join(parts)} |"


def _table1(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    yield from _head(
        "Table 1: with and without (test score)", "table1", "task", *NAMES.values(),
        "error reduction", "the paper", "error reduction there",
    )  # fmt: skip
    for task, known in tasks.items():
        scores = {v: values(chosen, "test", seeds(chosen, task, v)) for v in NAMES}
        reduction = MISSING
        if scores["glove"] and scores["glove+elmo"]:
            ours = fewer(*(statistics.mean(scores[v]) for v in ("glove", "glove+elmo")))
            reduction = f"{ours:.1f} %"
        there = known.get("paper")
        yield _row(
            f"{known['title']}, {known['score']}",
            *(_shown(result) for result in scores.values()),
            reduction,
            f"{there[0]:.1f} to {there[1]:.1f}" if there else "",
            f"{fewer(*there):.1f} %" if there else "",
        )
    data = [f"{known['title']}: {known['data']}" for known in tasks.values() if "data" in known]
    yield f"\nDifferences in the data: {'. '.join(data)}."


def _sizes(tasks: Tasks) -> Iterator[str]:
    yield "## Training sets, here and in the paper\n"
    yield from _columns("task", "training set", "the paper's, as released")
    for known in tasks.values():
        yield _row(known["title"], *known["trained_on"])


def _others(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    yield from _head(
        "Other scores of Table 1's runs (test score)", "table1", "task, score", *NAMES.values()
    )
    for task, known in tasks.items():
        for key, name in known.get("other_scores", {}).items():
            rows = (values(chosen, "scores", seeds(chosen, task, vectors)) for vectors in NAMES)
            result = (_shown([scores[key] for scores in column]) for column in rows)
            yield _row(f"{known['title']}, {name}", *result)


def _longer(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    yield from _head(
        "GloVe alone, trained three times longer (test score)", "longer", "task", "GloVe",
        "GloVe, trained three times longer", "GloVe + ELMo, as in Table 1",
        "error reduction against the longer run",
    )  # fmt: skip
    for task in LONGER_TASKS:
        groups = [
            seeds(chosen, task, "glove"),
            [chosen.longer(task, seed) for seed in SEEDS],
            seeds(chosen, task, "glove+elmo"),
        ]
        result = [values(chosen, "test", cells) for cells in groups]
        _, long, elmo = result
        both = bool(long and elmo)
        reduction = (
            f"{fewer(statistics.mean(long), statistics.mean(elmo)):.1f} %" if both else MISSING
        )
        yield _row(tasks[task]["title"], *map(_shown, result), reduction)


def _table2(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    yield from _head(
        "Table 2: which layers (dev score)", "table2", "task", "GloVe", "last only",
        "all, lambda 1", "all, lambda 0.001", "the paper",
    )  # fmt: skip
    choices = ("elmo.last_only=true", "elmo.penalty=1.0", "elmo.penalty=0.001")
    for task, there in PAPER2.items():
        groups = [seeds(chosen, task, "glove")]
        groups += [seeds(chosen, task, "glove+elmo", choice) for choice in choices]
        yield _against(chosen, tasks[task]["title"], groups, there)


def _table3(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    places = ("input", "both", "output")
    yield from _head("Table 3: where ELMo goes (dev score)", "table3", "task", *places, "the paper")
    for task, there in PAPER3.items():
        groups = [seeds(chosen, task, "glove+elmo", f"elmo.insert_at={place}") for place in places]
        yield _against(chosen, tasks[task]["title"], groups, there)


def _against(
    chosen: Chosen, title: str, groups: Iterable[Sequence[Cell]], there: Iterable[float]
) -> str:
    result = (_shown(values(chosen, "dev", cells)) for cells in groups)
    return _row(title, *result, " / ".join(map(str, there)))


def _figure1(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    columns = [f"{100 * fraction:g} %" for fraction in FRACTIONS]
    yield from _head(
        "Figure 1: a fraction of the examples (test score)", "figure1", "task", "vectors", *columns
    )
    for task in ("snli", "srl"):
        for vectors in ("glove", "glove+elmo"):
            result = (_shown(part(chosen, task, vectors, fraction)) for fraction in FRACTIONS)
            yield _row(tasks[task]["title"], NAMES[vectors], *result)


def _updates(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    """Compare with the GloVe run of the same seed: when does ELMo exceed its best score?"""
    yield from _head(
        "Updates until the baseline is passed", "table1", "task", "best dev score with GloVe",
        "its update", "first update with ELMo above it", "fewer updates",
    )  # fmt: skip
    for task in ("snli", "srl"):
        pairs = zip(seeds(chosen, task, "glove"), seeds(chosen, task, "glove+elmo"), strict=True)
        curves = [[chosen.found.get(cell.name) for cell in pair] for pair in pairs]
        result = [_passed(base["curve"], elmo["curve"]) for base, elmo in curves if base and elmo]
        title = tasks[task]["title"]
        if not result:
            yield _row(title, MISSING, "", "", "")
            continue
        best, at, passed = zip(*result, strict=True)
        never = passed.count(None)
        if never:
            told = f"never, in {never} of {len(result)}", ""
        else:
            told = _shown(passed, 0), f"{100 * (1 - sum(passed) / sum(at)):.0f} %"
        yield _row(title, _shown(best), _shown(at, 0), *told)


def _passed(
    base: Sequence[tuple[int, float]], elmo: Sequence[tuple[int, float]]
) -> tuple[float, int, int | None]:
    """Return the baseline's best score, its update, and the first update with ELMo above it."""
    at, best = max(base, key=lambda point: point[1])
    return best, at, next((step for step, score in elmo if score > best), None)


def _figure2(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    yield from _head(
        "Figure 2: layer weights (mean over the seeds)", "table1", "task", "place", *LAYERS,
        "gamma",
    )  # fmt: skip
    for task, known in tasks.items():
        result = mixes(chosen, task)
        for place, rows in result.items():
            numbers = (f"{number:.2f}" for number in means(rows))
            yield _row(known["title"], place + _few(rows), *numbers)
        if not result:
            yield _row(known["title"], MISSING, "", "", "", "")


def _finetuned(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    yield from _head(
        "A biLM fine-tuned for one pass on the task's own text (test score)", "finetuned", "task",
        "perplexity before", "after", NAMES["glove+elmo"], "with the fine-tuned biLM", "settings",
    )  # fmt: skip
    for task in ("snli", "ner"):
        tuned = chosen.found.get(f"fine-tuning, {task}")
        told = (f"{tuned['before']:.1f}", f"{tuned['after']:.1f}") if tuned else (MISSING, "")
        own = f"glove+elmo:{task}"
        best = chosen.cell(task, "glove+elmo").settings
        trials = [best, *(trial[0].settings for trial in chosen.trials(task, "glove+elmo"))]
        for settings in dict.fromkeys(trials):
            before, after = (
                values(chosen, "test", [Cell(task, vectors, settings, seed) for seed in SEEDS])
                for vectors in ("glove+elmo", own)
            )
            if not after and settings != best:
                continue
            mark = "best on dev" if settings == best else " ".join(settings)
            yield _row(tasks[task]["title"], *told, _shown(before), _shown(after), mark)


def _senses(chosen: Chosen) -> Iterator[str]:
    yield from _head(
        "Table 5: word senses by layer (F1)", "table5", "layer", "semeval2007", "senseval2"
    )
    row = chosen.found.get("senses")
    if not row:
        yield _row(MISSING, "", "")
        return
    tests = row["tests"]
    for layer, second in tests["senseval2"].items():
        mark = ", chosen" if layer == row["chosen"] else ""
        first = tests["semeval2007"][layer]
        yield _row(f"{layer}{mark}", f"{100 * first['f1']:.1f}", f"{100 * second['f1']:.1f}")
    yield "\nThe paper, on all of Raganato's sets: first layer 67.4, second 69.0."


def _speech(chosen: Chosen) -> Iterator[str]:
    yield from _head("Table 6: parts of speech by layer (accuracy)", "table6", "layer", "test")
    row = chosen.found.get("parts of speech")
    if not row:
        yield _row(MISSING, "")
        return
    for result in row["layers"]:
        yield _row(str(result["layer"]), f"{100 * result['test']:.1f}")
    yield "\nThe paper, on the WSJ: first layer 97.3, second 96.8."


def _trials(chosen: Chosen, tasks: Tasks) -> Iterator[str]:
    yield from _head(
        "Tuning (dev score)", "tune", "task", "vectors", "settings tried", "dev", "settings chosen",
    )  # fmt: skip
    for task, known in tasks.items():
        for vectors in ("glove", "glove+elmo"):
            trials = chosen.trials(task, vectors)
            run = sum(all(cell.name in chosen.found for cell in cells) for cells in trials)
            best = chosen.cell(task, vectors).settings
            dev = next(
                values(chosen, "dev", cells) for cells in trials if cells[0].settings == best
            )
            yield _row(
                known["title"],
                NAMES[vectors],
                f"{run} of {len(trials)}, {len(trials[0])} seed{'s'[: len(trials[0]) > 1]}",
                f"{statistics.mean(dev):.1f}" if dev else MISSING,
                f"`{' '.join(best) or 'the recipe'}`",
            )


def _cost(chosen: Chosen, tasks: Tasks, cells: dict[str, list[str]], at_once: int) -> Iterator[str]:
    shared = f"{at_once} runs shared the GPU" if at_once > 1 else "One run had the GPU to itself"
    yield from (
        "## Cost",
        "",
        f"{shared}, so one GPU hour holds at most {at_once} hours of runs, and a run takes longer "
        "than alone. A run that two tables share counts in both rows and once in the sum.",
        "",
    )
    yield from _columns("table", "runs done", "hours of runs", "GPU hours, at least", "CPU hours")
    for row in paper_cost.tables(chosen.found, cells):
        count = f"{row.there} of {row.asked}" if row.asked else f"{row.there}"
        hours = (row.gpu + row.cpu, row.gpu / at_once, row.cpu)
        yield _row(row.name, count, *(f"{number:.2f}" for number in hours))
    yield ""
    yield from _columns("run of Table 1", "vectors", "seconds", "updates", "ms per update")
    for task, known in tasks.items():
        for vectors, name in NAMES.items():
            rows = [chosen.found.get(cell.name) for cell in seeds(chosen, task, vectors)]
            seconds, updates = paper_cost.runs([row for row in rows if row])
            each = f"{1000 * sum(seconds) / sum(updates):.0f}" if updates else ""
            yield _row(known["title"], name, _shown(seconds, 0), _shown(updates, 0), each)


def _commands(chosen: Chosen) -> Iterator[str]:
    yield "## Commands\n"
    for name, row in chosen.found.items():
        yield f"- {name}: `{row['command']}`"
