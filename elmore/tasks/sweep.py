"""Train a task several times: with several seeds, on several fractions of its examples.

RUN/seed-0, RUN/seed-1, …             one run each, as `train` makes them
RUN/fraction-0.1/seed-0, …            for each fraction, if fractions are given
RUN/…/test.json                       scores on the test examples, confused labels, errors
RUN/…/test_counts.json                counts of each test example, for tests of significance
RUN/summary.json                      all scores, their means and standard deviations
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from elmore import atomic, config, strict_json
from elmore.errors import ConfigError, DataError
from elmore.tasks.checkpoint import find_runs, load_task
from elmore.tasks.data.datasets import Subset, TaskDatasets
from elmore.tasks.results import TEST_RESULTS
from elmore.tasks.task import Task, TaskConfig
from elmore.tasks.train import choose_embedder, train_on
from elmore.tasks.trained_task import TEST_COUNTS, TrainedTask
from elmore.train.distributed import init_distributed
from elmore.train.fit import Report

FORMAT = 1
Summary = dict[str, Any]
"""As JSON: `metric`, all `runs`, and a `summary` of each fraction, or of all runs."""


class Trial(NamedTuple):
    """One run of a sweep."""

    seed: int | None = None
    """None for the seed of the recipe, where no number of seeds was given."""
    fraction: float | None = None

    @property
    def name(self) -> str:
        """Its folder within that of the sweep."""
        parts = [] if self.fraction is None else [f"fraction-{self.fraction:g}"]
        parts += [] if self.seed is None else [f"seed-{self.seed}"]
        return "/".join(parts)


class RunScores(NamedTuple):
    """The scores of one run."""

    run: str
    metric: str
    """The score by which its weights were chosen."""
    fraction: float | None
    examples: int | None
    """Number of training examples."""
    seed: int
    scores: dict[str, dict[str, float]]
    """Scores by split."""


def list_trials(
    recipe: TaskConfig, *, num_seeds: int | None = None, fractions: Sequence[float] = ()
) -> list[Trial]:
    """Return every combination of fraction and seed; seeds count up from that of the recipe.

    Raises:
        ConfigError: a number is out of range, or a run would be trained twice.
    """
    if num_seeds is not None and num_seeds < 1:
        raise ConfigError(f"the number of seeds must be at least 1, found {num_seeds}")
    for fraction in fractions:
        if not 0 < fraction <= 1:
            raise ConfigError(f"a fraction must be above 0 and at most 1, found {fraction:g}")
    first = recipe.train.seed
    seeds = [None] if num_seeds is None else range(first, first + num_seeds)
    trials = [Trial(seed, fraction) for fraction in fractions or [None] for seed in seeds]
    names = [trial.name for trial in trials]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ConfigError(f"{repeated[0].partition('/')[0]} would be trained twice; name it once")
    return trials


def train_sweep(
    task_class: type[Task],
    recipe: TaskConfig,
    train: Path,
    dev: Path,
    out: Path,
    trials: Sequence[Trial],
    *,
    test: Path | None = None,
    embedder: str | None = None,
    resume: bool = False,
    device: str = "auto",
    on_report: Callable[[Trial, Report], None] | None = None,
) -> Summary:
    """Train all trials, one after another, and write summary.json.

    Examples are read once, and biLM layers are computed once, for all of them. With `resume`,
    finished runs stay as they are, an unfinished one continues, and the others start; without
    `embedder`, they use the one that the first of them has recorded.

    Args:
        task_class: the task, from `registry.find_task`.
        recipe: its settings; each trial replaces the seed.
        train: training examples.
        dev: examples to choose the best weights by.
        out: folder of the sweep.
        trials: the runs, from `list_trials`.
        test: examples to score at the end.
        embedder: as for `train`.
        resume: continue an unfinished sweep.
        device: `auto`, `cpu` or `cuda`.
        on_report: called with each progress report.

    Returns:
        The contents of summary.json: scores of all runs, means and standard deviations.

    Raises:
        TrainingStoppedError: SIGINT or SIGTERM arrived; the current run was saved.
    """
    recipes = [_with_seed(recipe, trial.seed) for trial in trials]
    with init_distributed(device) as (dist_env, local_device):
        existing = [trial for trial in trials if (out / trial.name / "recipe.json").is_file()]
        resumed = out / existing[0].name if resume and existing else None
        subsets = [Subset(t.fraction, r.train.seed) for t, r in zip(trials, recipes, strict=True)]
        datasets = TaskDatasets(
            task_class(recipe),
            train,
            dev,
            test=test,
            embedder=choose_embedder(embedder, resumed),
            dist_env=dist_env,
            device=local_device,
            subsets=subsets,
        )
        _check_folder(out, existing, resume=resume)
        datasets.wait()  # until every process has looked at the folder
        scores = []
        for trial, own in zip(trials, recipes, strict=True):
            trained = train_on(
                datasets,
                own,
                out / trial.name,
                fraction=trial.fraction,
                resume=resume and trial in existing,
                on_report=_reporter(trial, on_report),
            )
            by_split = {"dev": trained.scores}
            if test is not None and dist_env.is_main:
                by_split["test"] = trained.evaluate(
                    test,
                    cache_layers=True,
                    counts=out / trial.name / TEST_COUNTS,
                    results=out / trial.name / TEST_RESULTS,
                )
            scores.append(_run_scores(trained, out, trial.name, by_split))
        summary = summarize(scores)
        if dist_env.is_main:
            atomic.write(out / "summary.json", strict_json.encode(summary, indent=2))
    return summary


def _reporter(
    trial: Trial, on_report: Callable[[Trial, Report], None] | None
) -> Callable[[Report], None] | None:
    return None if on_report is None else lambda report: on_report(trial, report)


def _with_seed(recipe: TaskConfig, seed: int | None) -> TaskConfig:
    return recipe if seed is None else replace(recipe, train=replace(recipe.train, seed=seed))


def _check_folder(out: Path, existing: Sequence[Trial], *, resume: bool) -> None:
    if (out / "recipe.json").is_file():
        raise DataError(f"{out}: is a single run; name another folder for a sweep")
    if resume and not existing:
        raise DataError(f"{out}: there is no run to resume; leave out --resume")
    if existing and not resume:
        raise DataError(
            f"{out}: holds runs already ({min(trial.name for trial in existing)}); pass --resume "
            "to continue them, or name another folder"
        )


def evaluate_sweep(
    folder: Path, data: Path, *, device: str = "auto", embedder: str | None = None
) -> Summary:
    """Score every run of a sweep on a file.

    Args:
        folder: of the sweep.
        data: examples.
        device: `auto`, `cpu` or `cuda`.
        embedder: new place of the word vectors or the biLM used in training, if moved.
    """
    names = find_runs(folder)
    if not names:
        raise ConfigError(f"{folder}: no trained runs found; name the folder of a sweep")
    return summarize(list(_score_runs(folder, names, data, device, embedder)))


def _score_runs(
    folder: Path, names: Iterable[str], data: Path, device: str, embedder: str | None
) -> Iterator[RunScores]:
    embedders = None
    for name in names:
        trained = load_task(folder / name, device=device, embedder=embedder, embedders=embedders)
        embedders = trained.embedders  # opened once for all runs
        scores = trained.evaluate(data, cache_layers=True)
        yield _run_scores(trained, folder, name, {"data": scores})


def _run_scores(
    trained: TrainedTask, folder: Path, name: str, scores: dict[str, dict[str, float]]
) -> RunScores:
    data = config.read_json(folder / name / "recipe.json").get("data", {})
    return RunScores(
        run=name,
        metric=trained.task.metric,
        fraction=data.get("fraction"),
        examples=data.get("examples"),
        seed=trained.task.config.train.seed,
        scores=scores,
    )


def summarize(runs: Sequence[RunScores]) -> Summary:
    """Aggregate the scores of runs, separately for each fraction."""
    fractions = dict.fromkeys(run.fraction for run in runs)
    return {
        "format": FORMAT,
        "metric": runs[0].metric,
        "runs": [_row(one, run=one.run, seed=one.seed, scores=one.scores) for one in runs],
        "summary": [_aggregate([r for r in runs if r.fraction == f]) for f in fractions],
    }


def _aggregate(runs: Sequence[RunScores]) -> dict[str, Any]:
    scores = {split: mean_std([run.scores[split] for run in runs]) for split in runs[0].scores}
    return _row(runs[0], num_runs=len(runs), scores=scores)


def _row(one: RunScores, **more: object) -> dict[str, Any]:
    """Add fraction and number of examples, if there are fractions."""
    if one.fraction is None:
        return more
    return {"fraction": one.fraction, "examples": one.examples, **more}


def mean_std(scores: Sequence[dict[str, float]]) -> dict[str, dict[str, float | None]]:
    """Return mean and sample standard deviation of each score that all runs have."""
    result: dict[str, dict[str, float | None]] = {}
    for name in scores[0]:
        if all(name in some for some in scores):
            values = [some[name] for some in scores]
            deviation = statistics.stdev(values) if len(values) > 1 else None
            result[name] = {"mean": statistics.fmean(values), "deviation": deviation}
    return result


def format_mean_std(score: dict[str, float | None]) -> str:
    """Format a mean and its standard deviation, as in `90.12 ± 0.34`."""
    deviation = score["deviation"]
    return f"{score['mean']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")
