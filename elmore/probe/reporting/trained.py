"""What lies in a run folder: how training went, how good it became, what its layers weigh.

No model is opened: the numbers are in metrics.jsonl and recipe.json, the learned mix of a task in
its model.safetensors.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from elmore import config
from elmore.errors import ConfigError, DataError
from elmore.tasks import spread, storage, task
from elmore.tasks.spread import Scored, Summary
from elmore.train.runs import Run

_VALID = "valid_"
_MIX = re.compile(r"embedding\.(?:mixes\.)?(\w+)\.mix\.weights")


@dataclass(frozen=True)
class Trained:
    """One training."""

    name: str
    task: str | None
    """None for a language model."""
    metric: str
    """The score that counts."""
    steps: list[int]
    losses: list[float]
    evaluations: list[tuple[int, dict[str, float]]]
    """After which update, and the scores of held-out data."""
    embedder: str = ""
    seed: int | None = None
    fraction: float | None = None
    examples: int | None = None
    mixes: dict[str, list[float]] = field(default_factory=dict)
    """What each layer of the biLM weighs, at each place where they come in."""

    @property
    def higher_is_better(self) -> bool:
        """Perplexity is better when it is low."""
        return self.task is not None

    def best(self) -> tuple[int, dict[str, float]] | None:
        """Give the best evaluation; None where nothing was held out."""
        scored = [found for found in self.evaluations if self.metric in found[1]]
        sign = 1 if self.higher_is_better else -1
        return max(scored, key=lambda found: sign * found[1][self.metric], default=None)


@dataclass(frozen=True)
class Several:
    """One task trained several times."""

    name: str
    task: str
    runs: list[Trained]
    summary: Summary


def read(place: Path, name: str) -> list[Trained] | Several:
    """Read a run folder, or the folder of several runs."""
    within = storage.runs_within(place)
    if not within:
        found = [_one(place, name)]
        if (place / "softmax" / "metrics.jsonl").is_file():  # fine-tuning learned it first
            found.append(_one(place / "softmax", f"{name}/softmax"))
        return found
    runs = [_one(place / inside, f"{name}/{inside}") for inside in within]
    kind = runs[0].task
    if kind is None:
        raise DataError(f"{place}: holds several runs, but not of a task")
    written = place / "summary.json"
    if written.is_file():
        return Several(name, kind, runs, checked_summary(config.read_json(written), str(written)))
    return Several(name, kind, runs, _summary(runs, within))


def checked_summary(data: dict[str, Any], where: str) -> Summary:
    """Refuse what is not a summary of runs as `task train` and `task evaluate` write it."""
    config.check_format(data, spread.FORMAT, where, unsaid=1)
    try:
        tables = [table for part in data["summary"] for table in part["scores"].values()]
        means = [score["mean"] for table in tables for score in table.values()]
    except (KeyError, TypeError, AttributeError):
        tables, means = [], []
    if not tables or "metric" not in data or not all(isinstance(m, float | int) for m in means):
        raise DataError(
            f"{where}: expected means and deviations of runs, as 'task train' writes them"
        )
    return data


def _one(place: Path, name: str) -> Trained:
    run = Run(place)
    if not run.metrics.is_file():
        raise DataError(
            f"{place}: holds no metrics.jsonl; expected a folder that 'elmore pretrain', 'elmore "
            "finetune' or 'elmore task train' wrote"
        )
    records = _records(run.metrics)
    recipe = _recipe(place)
    kind = recipe.get("task")
    evaluations = [(record["step"], _scores(record)) for record in records if _scores(record)]
    data = recipe.get("data", {})
    return Trained(
        name,
        kind,
        _metric(kind, evaluations),
        [record["step"] for record in records],
        [record["loss"] for record in records],
        evaluations,
        recipe.get("embedder", {}).get("specification", "") if kind else "",
        recipe.get("train", {}).get("seed"),
        data.get("fraction"),
        data.get("examples"),
        _mixes(place / "best" / "model.safetensors") if kind else {},
    )


def _scores(record: dict[str, Any]) -> dict[str, float]:
    return {k.removeprefix(_VALID): v for k, v in record.items() if k.startswith(_VALID)}


def _recipe(place: Path) -> dict[str, Any]:
    path = place / "recipe.json"
    return config.read_json(path) if path.is_file() else {}


def _metric(kind: str | None, evaluations: list[tuple[int, dict[str, float]]]) -> str:
    if kind is None:
        return "perplexity"
    try:
        return task.find(kind).metric
    except ConfigError:  # a task of another version
        return next(iter(evaluations[0][1]), "score") if evaluations else "score"


def _records(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a run; a kill may have cut the last one short."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            found.append({**record, "step": int(record["step"]), "loss": float(record["loss"])})
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines) and found:
                break
            raise DataError(
                f"{path}: line {number}: expected a JSON object with step and loss, found "
                f"{line[:40]!r}"
            ) from error
    if not found:
        raise DataError(f"{path}: is empty; the run has not made an update yet")
    return found


def _mixes(path: Path) -> dict[str, list[float]]:
    """Read what the layers weigh, positive and summing to one, at each place."""
    if not path.is_file():
        return {}
    found = {}
    try:
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118 -- it is no dict
                place = _MIX.fullmatch(name)
                weights = file.get_tensor(name).astype(np.float64) if place else np.zeros(0)
                if place and len(weights):  # a mix of the top layer alone has nothing to weigh
                    shares = np.exp(weights - weights.max())
                    where = "output" if place[1] == "output" else "input"
                    found[where] = (shares / shares.sum()).tolist()
    except (OSError, SafetensorError, TypeError) as error:
        raise DataError(f"{path}: not a readable safetensors file ({error})") from error
    return found


def _summary(runs: list[Trained], names: list[str]) -> Summary:
    """Put runs together that were stopped before somebody did."""
    scored = []
    for run, name in zip(runs, names, strict=True):
        best = run.best()
        scores = {"dev": best[1] if best else {}}
        scored.append(Scored(name, run.metric, run.fraction, run.examples, run.seed or 0, scores))
    return spread.summary(scored)
