"""The runs behind the tables of benchmarks/paper.py, and their results.

A cell is one training. A plan says which cells a table needs, given the results so far: first the
trials of each column, then, with the settings that are best on the dev set, every seed.
"""

import hashlib
import json
import statistics
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from grid import Results

from elmore.tasks import registry

_FILE = tomllib.loads(Path(__file__).with_name("paper.toml").read_text("utf-8"))
PROTOCOL: dict[str, Any] = _FILE.pop("protocol")
TASKS: dict[str, dict[str, Any]] = _FILE
SEEDS: list[int] = PROTOCOL["seeds"]
ABLATION_SEEDS: list[int] = PROTOCOL["ablation_seeds"]
FRACTIONS: list[float] = PROTOCOL["fractions"]
LAYERS = ("characters", "LSTM 1", "LSTM 2")
COLUMNS = {
    "static": "fastText",
    "elmo": "fastText + ELMo",
    "untrained": "fastText + untrained biLM",
    "glove": "GloVe",
}
"""The columns of Table 1, the most important first."""

TABLE2 = {
    "last layer only": "elmo.last_only=true",
    "all layers, lambda 1": "elmo.penalty=1.0",
    "all layers, lambda 0.001": "elmo.penalty=0.001",
}
ABLATIONS = {
    "gamma fixed at 1": "elmo.learn_gamma=false",
    "layer norm": "elmo.layer_norm=true",
    "no layer norm": "elmo.layer_norm=false",
    "dropout 0.5 on ELMo": "elmo.dropout=0.5",
    "no dropout on ELMo": "elmo.dropout=0.0",
}
TABLE3 = {place: f"elmo.insert_at={place}" for place in ("input", "both", "output")}
ABLATION_TASKS = ("squad", "snli", "srl")
FRACTION_TASKS = ("snli", "srl")
FINETUNED_TASKS = ("snli", "ner")


class Cell(NamedTuple):
    """One training of a task model."""

    task: str
    column: str
    """A key of `COLUMNS`, or `finetuned`: ELMo with the biLM fine-tuned on the task's text."""
    settings: tuple[str, ...]
    """Over those of the protocol and of the task."""
    seed: int
    fraction: float = 1.0
    """Of the training examples."""

    @property
    def name(self) -> str:
        """The name of its result."""
        part = () if self.fraction == 1 else (f"{self.fraction:g} of the examples",)
        words = [self.task, self.column, *self.settings, *part, f"seed {self.seed}"]
        return ", ".join(words)

    def all_settings(self) -> list[str]:
        """Return every setting over the recipe, in the order in which they apply."""
        task = TASKS[self.task]["settings"]
        column = PROTOCOL["column_settings"].get(self.column, [])
        seed = f"train.seed={self.seed}"
        return [*PROTOCOL["settings"], *task, *column, *self.settings, seed]


class Plan(NamedTuple):
    """The requested part of the protocol, and the results so far."""

    found: Results
    tasks: Sequence[str] | None = None
    """None: all but those on request."""
    columns: Sequence[str] = tuple(COLUMNS)
    extra: tuple[str, ...] = ()
    """Settings over everything else, for trying things out."""

    def of(self, names: Iterable[str]) -> list[str]:
        """Return those of the named tasks that were requested, the longest runs first."""
        asked = [
            name
            for name in names
            if (name in self.tasks if self.tasks else not TASKS[name].get("on_request"))
        ]
        return sorted(asked, key=lambda name: -TASKS[name]["seconds"])

    def trials(self, task: str, column: str) -> list[Cell]:
        """Return the trials of a column: the same for every column, with the first seed."""
        pairs = product(PROTOCOL["rates"], PROTOCOL["freeze"])
        settings = [
            (f"train.lr={rate:g}", f"words.freeze={str(freeze).lower()}", *self.extra)
            for rate, freeze in pairs
        ]
        return [Cell(task, column, each, SEEDS[0]) for each in settings]

    def tuned(self, task: str, column: str) -> tuple[str, ...] | None:
        """Return the settings with the best dev score, or None until every trial has ended."""
        trials = self.trials(task, "elmo" if column == "finetuned" else column)
        results = [self.found.get(cell.name) for cell in trials]
        if None in results or not any("dev" in result for result in results if result):
            return None
        scores = [result.get("dev", -1.0) for result in results if result]
        return trials[scores.index(max(scores))].settings

    def runs(
        self, task: str, column: str, *more: str, seeds: Sequence[int] = SEEDS, fraction: float = 1
    ) -> list[Cell]:
        """Return a cell for each seed with the tuned settings; nothing until those are known."""
        settings = self.tuned(task, column)
        if settings is None:
            return []
        for setting in more:
            if _changes(task, settings, setting):  # a run that two tables share is run once
                settings = (*settings, setting)
        return [Cell(task, column, settings, seed, fraction) for seed in seeds]

    def fraction(self, task: str, column: str, fraction: float) -> list[Cell]:
        """Return the runs on a fraction of the training examples."""
        if fraction == 1:
            return self.runs(task, column, seeds=ABLATION_SEEDS)
        every = PROTOCOL["evaluate_every"][f"{fraction:g}"]
        epochs = f"train.epochs={100 / fraction:g}"
        more = (epochs, f"train.evaluate_every={every}", f"train.save_every={every}")
        return self.runs(task, column, *more, seeds=ABLATION_SEEDS, fraction=fraction)

    def values(self, key: str, cells: Iterable[Cell]) -> list[Any]:
        """Return one entry of the result of each cell that has it."""
        results = (self.found.get(cell.name, {}) for cell in cells)
        return [result[key] for result in results if key in result]

    def mixes(self, task: str) -> dict[str, list[list[float]]]:
        """Return the layer weights, followed by gamma, for each insertion point and seed."""
        result: dict[str, list[list[float]]] = {}
        for layers in self.values("layers", self.runs(task, "elmo")):
            for place, mix in layers.items():
                result.setdefault(place, []).append([*mix["weights"], mix["gamma"]])
        return result


def task_class(task: str) -> Any:  # noqa: ANN401 -- a subclass of Task
    """Return the class of a task of paper.toml."""
    return registry.find_task(TASKS[task].get("task", task))


@cache
def recipe_name(task: str) -> str | None:
    """Return the recipe with the paper's sizes, or None if the task has only its default one."""
    return "paper" if "paper" in registry.list_recipes(task_class(task)) else None


@cache
def recipe_sha256(task: str) -> str:
    """Return the hash of what the recipe says, whatever its comments are."""
    path = registry.list_recipes(task_class(task))[recipe_name(task) or "recipe"]
    text = json.dumps(tomllib.loads(path.read_text("utf-8")), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _changes(task: str, settings: tuple[str, ...], setting: str) -> bool:
    """Return whether a setting changes anything."""
    kind, recipe = task_class(task), recipe_name(task)
    before = [*PROTOCOL["settings"], *TASKS[task]["settings"], *settings]
    return registry.load_recipe(kind, recipe, [*before, setting]) != registry.load_recipe(
        kind, recipe, before
    )


def _tuned_first(plan: Plan, task: str, column: str, runs: Iterable[Cell]) -> list[Cell]:
    """Return the trials of a column until it is tuned, then its runs."""
    return plan.trials(task, column) if plan.tuned(task, column) is None else list(runs)


def table1(plan: Plan) -> list[Cell]:
    """Return the runs of every task and column."""
    return [
        cell
        for column in plan.columns
        for task in plan.of(TASKS)
        for cell in _tuned_first(plan, task, column, plan.runs(task, column))
    ]


def _with_elmo(plan: Plan, choices: dict[str, str]) -> list[Cell]:
    return [
        cell
        for task in plan.of(ABLATION_TASKS)
        for choice in choices.values()
        for cell in _tuned_first(
            plan, task, "elmo", plan.runs(task, "elmo", choice, seeds=ABLATION_SEEDS)
        )
    ]


def table2(plan: Plan) -> list[Cell]:
    """Compare the last layer alone with all layers, for a large and a small lambda."""
    return _with_elmo(plan, TABLE2)


def table3(plan: Plan) -> list[Cell]:
    """Insert ELMo at the input, at the output of the encoder, or at both."""
    return _with_elmo(plan, TABLE3)


def ablations(plan: Plan) -> list[Cell]:
    """Vary gamma, layer norm and dropout of the mix."""
    return _with_elmo(plan, ABLATIONS)


def figure1(plan: Plan) -> list[Cell]:
    """Train on fractions of the training examples."""
    return [
        cell
        for task in plan.of(FRACTION_TASKS)
        for column in ("static", "elmo")
        for fraction in FRACTIONS
        for cell in _tuned_first(plan, task, column, plan.fraction(task, column, fraction))
    ]


def finetuned(plan: Plan) -> list[Cell]:
    """Use a biLM that was fine-tuned on the task's text, with the settings of ELMo."""
    return [
        cell
        for task in plan.of(FINETUNED_TASKS)
        for cell in _tuned_first(plan, task, "elmo", plan.runs(task, "finetuned"))
    ]


TABLES: dict[str, Callable[[Plan], list[Cell]]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "ablations": ablations,
    "figure1": figure1,
    "finetuned": finetuned,
}


def means(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of each column."""
    return [statistics.mean(column) for column in zip(*rows, strict=True)]
