"""Print the page of benchmarks/paper.py from its results: every table, missing ones marked."""

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paper_cost
from jaxtyping import Float
from paper_bootstrap import Gain, paired_bootstrap
from paper_cells import (
    ABLATION_SEEDS,
    ABLATION_TASKS,
    ABLATIONS,
    COLUMNS,
    FINETUNED_TASKS,
    FRACTION_TASKS,
    FRACTIONS,
    LAYERS,
    PROTOCOL,
    SEEDS,
    TABLE2,
    TABLE3,
    TASKS,
    Cell,
    Plan,
    means,
    task_class,
)

from elmore.probe.senses import is_beyond_paper
from elmore.tasks import registry

MISSING = "missing"
PAPER2 = {"squad": "80.8 / 84.7 / 85.0 / 85.2", "snli": "88.1 / 89.1 / 89.3 / 89.5"}
PAPER2 |= {"srl": "81.6 / 84.1 / 84.6 / 84.8"}
PAPER3 = {"squad": "85.1 / 85.6 / 84.8", "snli": "88.9 / 89.5 / 88.7", "srl": "84.7 / 84.3 / 80.9"}


def page(plan: Plan, results: Path) -> str:
    """Return the page of all results so far."""
    head = [
        f"# The tables of the paper: {results.name}",
        "",
        f"Printed by `python benchmarks/paper.py page {results}` from one file per run.",
        "The protocol is docs/protocol.md. Scores are means over the seeds ± standard deviation.",
    ]
    parts = [
        head,
        _table1(plan),
        _gains(plan),
        _sizes(plan),
        _others(plan),
        _choices(plan, "Table 2: which layers (dev score)", "table2", TABLE2, PAPER2),
        _choices(plan, "Table 3: where ELMo goes (dev score)", "table3", TABLE3, PAPER3),
        _choices(plan, "The mix: gamma, layer norm, dropout (dev score)", "ablations", ABLATIONS),
        _figure1(plan),
        _updates(plan),
        _figure2(plan),
        _finetuned(plan),
        _senses(plan),
        _speech(plan),
        _trials(plan),
        _cost(plan),
        _commands(plan),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def gain(plan: Plan, task: str, before: str, after: str = "elmo") -> Gain | None:
    """Return the gain in test score from one column to another, or None if a seed is missing."""
    columns = [plan.values("counts", plan.runs(task, column)) for column in (before, after)]
    if min(map(len, columns)) < len(SEEDS):
        return None
    kind = task_class(task)
    score = kind(registry.load_recipe(kind)).score_counts
    sizes = next(iter(plan.values("cluster_sizes", plan.runs(task, after))), None)
    old, new = ([_sum_clusters(counts, sizes) for counts in column] for column in columns)
    alpha, resamples = PROTOCOL["alpha"], PROTOCOL["resamples"]
    return paired_bootstrap(old, new, score, resamples=resamples, alpha=alpha)


def _sum_clusters(
    counts: Sequence[Sequence[float]], sizes: Sequence[int] | None
) -> Float[np.ndarray, "N C"]:
    """Return the counts of each example, or of each cluster of examples that follow each other."""
    rows = np.array(counts, float).T
    if sizes is None:
        return rows
    assert sum(sizes) == len(rows), f"{sum(sizes)} examples in clusters, {len(rows)} were tested"
    return np.add.reduceat(rows, np.cumsum([0, *sizes[:-1]]))


def _format_gain(result: Gain | None) -> tuple[str, str]:
    if result is None:
        return MISSING, ""
    smallest = 2 / (PROTOCOL["resamples"] + 1)
    p = f"{result.p:.4f}" if result.p > smallest else f"< {1.0001 * smallest:.4f}"
    return f"{result.mean:+.1f} ({result.low:+.1f} to {result.high:+.1f})", p


def _shown(numbers: Sequence[float], seeds: Sequence[int] = SEEDS, digits: int = 1) -> str:
    if not numbers:
        return MISSING
    spread = f" ± {statistics.stdev(numbers):,.{digits}f}" if len(numbers) > 1 else ""
    few = f" ({len(numbers)} of {len(seeds)} seeds)" if len(numbers) < len(seeds) else ""
    return f"{statistics.mean(numbers):,.{digits}f}{spread}{few}"


def _head(title: str, table: str, *columns: str) -> list[str]:
    return [
        f"## {title}",
        "",
        f"`python benchmarks/paper.py {table} RESULTS`",
        "",
        *_columns(*columns),
    ]


def _columns(*names: str) -> list[str]:
    return [_row(*names), f"|{'---|' * len(names)}"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _shown_tasks(plan: Plan, names: Iterable[str] = TASKS) -> list[str]:
    """Return tasks in the order of paper.toml."""
    asked = plan.of(names)
    return [name for name in names if name in asked]


def _table1(plan: Plan) -> Iterator[str]:
    confidence = f"{100 * (1 - PROTOCOL['alpha']):g} %"
    yield from _head(
        "Table 1: test scores", "table1", "task, score", *COLUMNS.values(),
        f"gain of ELMo over fastText ({confidence} interval)", "p", "the paper", "gain there",
    )  # fmt: skip
    for task in _shown_tasks(plan):
        known = TASKS[task]
        scores = [plan.values("test", plan.runs(task, column)) for column in COLUMNS]
        there = known.get("paper")
        yield _row(
            f"{known['title']}, {known['score']}",
            *map(_shown, scores),
            *_format_gain(gain(plan, task, "static")),
            f"{there[0]:.1f} to {there[1]:.1f}" if there else "",
            f"{there[1] - there[0]:+.1f}" if there else "",
        )
    data = [f"{k['title']}: {k['data']}" for t in _shown_tasks(plan) if "data" in (k := TASKS[t])]
    yield f"\nGains are in points. Differences in the data: {'. '.join(data)}."
    cells = [c for t in plan.of(TASKS) for column in COLUMNS for c in plan.runs(t, column)]
    ended = plan.values("converged", cells)
    yield f"Runs that stopped because the dev score had converged: {sum(ended)} of {len(ended)}."


def _gains(plan: Plan) -> Iterator[str]:
    yield from _head(
        "Other gains (test score)", "table1", "task", "ELMo over the untrained biLM", "p",
        "ELMo over GloVe", "p", "the untrained biLM over fastText", "p",
    )  # fmt: skip
    for task in _shown_tasks(plan):
        pairs = (("untrained", "elmo"), ("glove", "elmo"), ("static", "untrained"))
        cells = [text for pair in pairs for text in _format_gain(gain(plan, task, *pair))]
        yield _row(TASKS[task]["title"], *cells)


def _sizes(plan: Plan) -> Iterator[str]:
    yield "## Training sets, here and in the paper\n"
    yield from _columns("task", "training set", "the paper's, as released")
    for task in _shown_tasks(plan):
        yield _row(TASKS[task]["title"], *TASKS[task]["trained_on"])


def _others(plan: Plan) -> Iterator[str]:
    yield from _head(
        "Other scores of Table 1's runs (test score)", "table1", "task, score", *COLUMNS.values()
    )
    for task in _shown_tasks(plan):
        for key, name in TASKS[task].get("other_scores", {}).items():
            columns = (plan.values("scores", plan.runs(task, column)) for column in COLUMNS)
            result = (_shown([scores[key] for scores in column]) for column in columns)
            yield _row(f"{TASKS[task]['title']}, {name}", *result)


def _choices(
    plan: Plan, title: str, table: str, choices: dict[str, str], paper: dict[str, str] | None = None
) -> Iterator[str]:
    there = ["the paper, in the order of the columns"] if paper else []
    yield from _head(title, table, "task", "fastText", *choices, *there)
    for task in _shown_tasks(plan, ABLATION_TASKS):
        groups = [plan.runs(task, "static", seeds=ABLATION_SEEDS)]
        groups += [plan.runs(task, "elmo", c, seeds=ABLATION_SEEDS) for c in choices.values()]
        result = (_shown(plan.values("dev", cells), ABLATION_SEEDS) for cells in groups)
        yield _row(TASKS[task]["title"], *result, *([paper[task]] if paper else []))


def _figure1(plan: Plan) -> Iterator[str]:
    columns = [f"{100 * fraction:g} %" for fraction in FRACTIONS]
    title = "Figure 1: a fraction of the examples (test score)"
    yield from _head(title, "figure1", "task", "vectors", *columns)
    for task in _shown_tasks(plan, FRACTION_TASKS):
        for column in ("static", "elmo"):
            groups = [plan.fraction(task, column, fraction) for fraction in FRACTIONS]
            result = (_shown(plan.values("test", cells), ABLATION_SEEDS) for cells in groups)
            yield _row(TASKS[task]["title"], COLUMNS[column], *result)


def _updates(plan: Plan) -> Iterator[str]:
    """Compare with the baseline of the same seed: when does ELMo exceed its best score?"""
    yield from _head(
        "Updates until the baseline is passed", "table1", "task", "best dev score with fastText",
        "its update", "first update with ELMo above it", "fewer updates",
    )  # fmt: skip
    for task in _shown_tasks(plan, FRACTION_TASKS):
        columns = [plan.runs(task, column) for column in ("static", "elmo")]
        pairs = [plan.values("curve", pair) for pair in zip(*columns, strict=False)]
        result = [_passed(*pair) for pair in pairs if len(pair) == 2]
        title = TASKS[task]["title"]
        if not result:
            yield _row(title, MISSING, "", "", "")
            continue
        best, at, passed = zip(*result, strict=True)
        never = passed.count(None)
        if never:
            told = f"never, in {never} of {len(result)}", ""
        else:
            told = _shown(passed, digits=0), f"{100 * (1 - sum(passed) / sum(at)):.0f} %"
        yield _row(title, _shown(best), _shown(at, digits=0), *told)


def _passed(
    base: Sequence[tuple[int, float]], elmo: Sequence[tuple[int, float]]
) -> tuple[float, int, int | None]:
    """Return the baseline's best score, its update, and the first update with ELMo above it."""
    at, best = max(base, key=lambda point: point[1])
    return best, at, next((step for step, score in elmo if score > best), None)


def _figure2(plan: Plan) -> Iterator[str]:
    title = "Figure 2: layer weights (mean over the seeds)"
    yield from _head(title, "table1", "task", "place", *LAYERS, "gamma")
    for task in _shown_tasks(plan):
        result = plan.mixes(task)
        for place, rows in result.items():
            few = f" ({len(rows)} of {len(SEEDS)} seeds)" if len(rows) < len(SEEDS) else ""
            numbers = (f"{number:.2f}" for number in means(rows))
            yield _row(TASKS[task]["title"], place + few, *numbers)
        if not result:
            yield _row(TASKS[task]["title"], MISSING, "", "", "", "")


def _finetuned(plan: Plan) -> Iterator[str]:
    yield from _head(
        "A biLM fine-tuned for one pass on the task's own text (test score)", "finetuned", "task",
        "perplexity before", "after", COLUMNS["elmo"], "with the fine-tuned biLM", "gain", "p",
    )  # fmt: skip
    for task in _shown_tasks(plan, FINETUNED_TASKS):
        tuned = plan.found.get(f"fine-tuning, {task}")
        told = (f"{tuned['before']:.1f}", f"{tuned['after']:.1f}") if tuned else (MISSING, "")
        scores = [plan.values("test", plan.runs(task, column)) for column in ("elmo", "finetuned")]
        difference = _format_gain(gain(plan, task, "elmo", "finetuned"))
        yield _row(TASKS[task]["title"], *told, *map(_shown, scores), *difference)


def _senses(plan: Plan) -> Iterator[str]:
    row = plan.found.get("senses", {"tests": {}})
    tests = row["tests"]
    yield from _head("Table 5: word senses by layer (F1)", "table5", "layer", *tests)
    for layer in itertools.filterfalse(is_beyond_paper, next(iter(tests.values()), {})):
        mark = ", chosen" if layer == row["chosen"] else ""
        scores = (f"{100 * test[layer]['f1']:.1f}" for test in tests.values())
        yield _row(f"{layer}{mark}", *scores)
    if not tests:
        yield _row(MISSING)
    yield "\nThe paper, on all of Raganato's sets: first layer 67.4, second 69.0."


def _speech(plan: Plan) -> Iterator[str]:
    yield from _head("Table 6: parts of speech by layer (accuracy)", "table6", "layer", "test")
    row = plan.found.get("parts of speech")
    if not row:
        yield _row(MISSING, "")
        return
    for result in row["layers"]:
        yield _row(str(result["layer"]), f"{100 * result['test']:.1f}")
    yield "\nThe paper, on the WSJ: first layer 97.3, second 96.8."


def _trials(plan: Plan) -> Iterator[str]:
    yield from _head(
        "Trials (dev score, one seed); the best one of a row is used", "table1", "task", "vectors",
        *(" ".join(cell.settings[:2]) for cell in plan.trials("ner", "static")),
    )  # fmt: skip
    for task in _shown_tasks(plan):
        for column, title in COLUMNS.items():
            cells = plan.trials(task, column)
            yield _row(TASKS[task]["title"], title, *(_trial(plan, cell) for cell in cells))


def _trial(plan: Plan, cell: Cell) -> str:
    result: dict[str, Any] = plan.found.get(cell.name, {"dev": MISSING})
    score = result.get("dev", "diverged")
    shown = f"{score:.1f}" if isinstance(score, float) else score
    return f"**{shown}**" if plan.tuned(cell.task, cell.column) == cell.settings else shown


def _cost(plan: Plan) -> Iterator[str]:
    yield from (
        "## Cost",
        "",
        "Runs share the GPU. The GPU minutes of a run are its own minutes divided by the number of "
        "runs at a time.",
        "",
    )
    yield from _columns("table", "runs done", "runs left", "GPU minutes")
    for row in paper_cost.rows(plan, at_once=1):
        yield _row(row.table, str(row.done), str(row.left), f"{row.used:.1f}")
    yield ""
    yield from _columns("run of Table 1", "vectors", "seconds", "updates", "ms per update")
    for task in _shown_tasks(plan):
        for column, title in COLUMNS.items():
            cells = plan.runs(task, column)
            seconds = plan.values("seconds", cells)
            updates = [curve[-1][0] for curve in plan.values("curve", cells)]
            each = f"{1000 * sum(seconds) / sum(updates):.0f}" if updates else ""
            shown = (_shown(seconds, digits=0), _shown(updates, digits=0))
            yield _row(TASKS[task]["title"], title, *shown, each)


def _commands(plan: Plan) -> Iterator[str]:
    yield "## Commands\n"
    for name, result in sorted(plan.found.items()):
        yield f"- {name}: `{result['command']}`"
