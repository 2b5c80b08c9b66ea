"""Load run folders: losses, evaluations and learned layer weights.

No model is built: the numbers are in metrics.jsonl and recipe.json, and the layer weights of a task
are read from its model.safetensors.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from elmore import config
from elmore.errors import ConfigError, DataError
from elmore.tasks import checkpoint, registry, results, sweep
from elmore.tasks.results import TEST_RESULTS, Results
from elmore.tasks.sweep import RunScores, Summary
from elmore.train.runs import VALID, Run

_MIX = re.compile(r"embedding\.(?:mixes\.)?(\w+)\.mix\.weights")


@dataclass(frozen=True)
class TrainingRun:
    """One training run."""

    name: str
    task: str | None
    """None for a language model."""
    metric: str
    """The main score."""
    steps: list[int]
    losses: list[float]
    evaluations: list[tuple[int, dict[str, float]]]
    """The step, and the scores on held-out data."""
    embedder: str = ""
    seed: int | None = None
    fraction: float | None = None
    examples: int | None = None
    mixes: dict[str, list[float]] = field(default_factory=dict)
    """Normalized layer weights of the biLM, at the input and at the output."""
    test: Results | None = None
    """Scores and errors on the test examples."""

    @property
    def higher_is_better(self) -> bool:
        """Whether the main score is not a perplexity."""
        return self.task is not None

    def best(self) -> tuple[int, dict[str, float]] | None:
        """Return the best evaluation; None without held-out data."""
        scored = [one for one in self.evaluations if self.metric in one[1]]
        sign = 1 if self.higher_is_better else -1
        return max(scored, key=lambda one: sign * one[1][self.metric], default=None)


@dataclass(frozen=True)
class Sweep:
    """One task trained with several seeds or training fractions."""

    name: str
    task: str
    runs: list[TrainingRun]
    summary: Summary


def load_run_folder(folder: Path, name: str) -> list[TrainingRun] | Sweep:
    """Load a run folder, or the folder of a sweep."""
    within = checkpoint.find_runs(folder)
    if not within:
        runs = [_load_run(folder, name)]
        if (folder / "softmax" / "metrics.jsonl").is_file():  # written by fine-tuning
            runs.append(_load_run(folder / "softmax", f"{name}/softmax"))
        return runs
    runs = [_load_run(folder / inside, f"{name}/{inside}") for inside in within]
    kind = runs[0].task
    if kind is None:
        raise DataError(f"{folder}: holds several runs, but they are not of a task")
    summary_path = folder / "summary.json"
    if summary_path.is_file():
        return Sweep(
            name, kind, runs, check_summary(config.read_json(summary_path), str(summary_path))
        )
    return Sweep(name, kind, runs, _summary(runs, within))


def check_summary(data: dict[str, Any], where: str) -> Summary:
    """Return the summary of a sweep after checking that it has the expected keys and types."""
    config.check_format(data, sweep.FORMAT, where, default=1)
    try:
        summary = config.build(_Summary, data, where, unknown="ignore")
    except ConfigError as error:
        raise DataError(
            f"{where}: expected means and deviations of runs, as 'task train' writes them "
            f"({str(error).removeprefix(f'{where}: ')})"
        ) from error
    kinds = {frozenset(part) & {"fraction", "examples"} for part in data["summary"]}
    if not any(part.scores for part in summary.summary) or len(kinds) > 1 or len(*kinds) == 1:
        raise DataError(
            f"{where}: expected means and deviations of runs, as 'task train' writes them"
        )
    parts = zip(data["summary"], config.as_dict(summary)["summary"], strict=True)
    return {**data, "summary": [{**row, "scores": part["scores"]} for row, part in parts]}


@dataclass(frozen=True)
class _MeanAndDeviation:
    """Mean and standard deviation of a score."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class _Part:
    """The runs of one training fraction, or all runs."""

    num_runs: int
    scores: dict[str, dict[str, _MeanAndDeviation]]
    fraction: float = 1.0
    examples: int = 0


@dataclass(frozen=True)
class _Summary:
    """The keys of a summary that a report shows."""

    metric: str
    summary: tuple[_Part, ...]


@dataclass(frozen=True)
class _DataOfRun:
    fraction: float | None = None
    examples: int | None = None


@dataclass(frozen=True)
class _EmbedderOfRun:
    specification: str = ""


@dataclass(frozen=True)
class _TrainOfRun:
    seed: int | None = None


@dataclass(frozen=True)
class _Recipe:
    """The keys of recipe.json that a report shows."""

    task: str | None = None
    data: _DataOfRun = field(default_factory=_DataOfRun)
    embedder: _EmbedderOfRun = field(default_factory=_EmbedderOfRun)
    train: _TrainOfRun = field(default_factory=_TrainOfRun)


def _load_run(folder: Path, name: str) -> TrainingRun:
    run = Run(folder)
    if not run.metrics.is_file():
        raise DataError(
            f"{folder}: holds no metrics.jsonl; expected a folder that 'elmore pretrain', 'elmore "
            "finetune' or 'elmore task train' wrote"
        )
    records = [record for _, record in run.read_metrics()]
    if not records:
        raise DataError(f"{run.metrics}: is empty; the run has not finished a step yet")
    recipe = _recipe(folder)
    kind = recipe.task
    evaluations = [(record["step"], _scores(record)) for record in records if _scores(record)]
    return TrainingRun(
        name,
        kind,
        _metric(kind, evaluations),
        [record["step"] for record in records],
        [record["loss"] for record in records],
        evaluations,
        recipe.embedder.specification if kind else "",
        recipe.train.seed,
        recipe.data.fraction,
        recipe.data.examples,
        _mixes(folder / "best" / "model.safetensors") if kind else {},
        results.read(folder / TEST_RESULTS) if (folder / TEST_RESULTS).is_file() else None,
    )


def _scores(record: dict[str, Any]) -> dict[str, float]:
    return {k.removeprefix(VALID): v for k, v in record.items() if k.startswith(VALID)}


def _recipe(folder: Path) -> _Recipe:
    path = folder / "recipe.json"
    data = config.read_json(path) if path.is_file() else {}
    return config.build(_Recipe, data, str(path), unknown="ignore")


def _metric(kind: str | None, evaluations: list[tuple[int, dict[str, float]]]) -> str:
    if kind is None:
        return "perplexity"
    try:
        return registry.find_task(kind).metric
    except ConfigError:  # a task of another version
        return next(iter(evaluations[0][1]), "score") if evaluations else "score"


def _mixes(path: Path) -> dict[str, list[float]]:
    """Read the layer weights and normalize them by a softmax."""
    if not path.is_file():
        return {}
    mixes = {}
    try:
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118 -- not a dict
                match = _MIX.fullmatch(name)
                weights = file.get_tensor(name).astype(np.float64) if match else np.zeros(0)
                if match and len(weights):  # a mix of one layer has no weights
                    exponentials = np.exp(weights - weights.max())
                    where = "output" if match[1] == "output" else "input"
                    mixes[where] = (exponentials / exponentials.sum()).tolist()
    except (OSError, SafetensorError, TypeError) as error:
        raise DataError(f"{path}: not a readable safetensors file ({error})") from error
    return mixes


def _summary(runs: list[TrainingRun], names: list[str]) -> Summary:
    """Summarize a sweep that was stopped before it wrote summary.json."""
    scored = []
    for run, name in zip(runs, names, strict=True):
        best = run.best()
        scores = {"dev": best[1] if best else {}}
        scored.append(
            RunScores(name, run.metric, run.fraction, run.examples, run.seed or 0, scores)
        )
    return sweep.summarize(scored)
