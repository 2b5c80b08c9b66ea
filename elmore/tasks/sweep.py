"""A task trained several times: with several seeds, on several fractions of its examples.

RUN/seed-0, RUN/seed-1, …             one run each, as `run.train` makes them
RUN/fraction-0.1/seed-0, …            of each fraction, where some are named
RUN/summary.json                      every score, their means and deviations
"""

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from elmore import atomic, config
from elmore.errors import ConfigError, DataError
from elmore.tasks import aggregate, checkpoint, identity, run
from elmore.tasks.aggregate import Scored, Summary
from elmore.tasks.data.datasets import Lesson, Part
from elmore.tasks.embedding.spec import Sources
from elmore.tasks.run import Reports
from elmore.tasks.task import Task, TaskConfig
from elmore.tasks.trained_task import Solver
from elmore.train.distributed import init_distributed


class Trial(NamedTuple):
    """One of several trainings."""

    seed: int | None = None
    """None for that of the recipe, where no number of seeds was asked for."""
    fraction: float | None = None

    @property
    def name(self) -> str:
        """Where it lies in the folder of them all."""
        parts = [] if self.fraction is None else [f"fraction-{self.fraction:g}"]
        parts += [] if self.seed is None else [f"seed-{self.seed}"]
        return "/".join(parts)


class Stage(NamedTuple):
    """A training that is about to begin."""

    trial: Trial
    reports: Reports
    """Of its progress; without any, it was finished before."""


def trials(
    recipe: TaskConfig, *, seeds: int | None = None, fractions: Sequence[float] = ()
) -> list[Trial]:
    """Give every fraction with every seed, from that of the recipe on."""
    if seeds is not None and seeds < 1:
        raise ConfigError(f"the number of seeds must be at least 1, found {seeds}")
    for fraction in fractions:
        if not 0 < fraction <= 1:
            raise ConfigError(f"a fraction must be above 0 and at most 1, found {fraction:g}")
    first = recipe.train.seed
    numbers = [None] if seeds is None else range(first, first + seeds)
    found = [Trial(seed, fraction) for fraction in fractions or [None] for seed in numbers]
    names = [trial.name for trial in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"{twice[0].partition('/')[0]} would be trained twice; name it once")
    return found


def train(
    kind: type[Task],
    recipe: TaskConfig,
    examples: Path,
    valid: Path,
    out: Path,
    chosen: Sequence[Trial],
    *,
    test: Path | None = None,
    embedder: str | None = None,
    resume: bool = False,
    device: str = "auto",
) -> Generator[Stage, None, None]:
    """Train one trial after another, on examples that are read once and layers computed once.

    Follow the reports of each stage. A signal that stops one ends them all; with `resume` those
    that are finished stay as they are, one that is not goes on, and the others begin. Without
    `embedder`, they all take the one that the resumed runs have recorded.
    """
    recipes = [_seeded(recipe, trial.seed) for trial in chosen]
    with init_distributed(device) as (dist_env, place):
        begun = [trial for trial in chosen if (out / trial.name / "recipe.json").is_file()]
        resumed = out / begun[0].name if resume and begun else None
        lesson = Lesson(
            kind(recipe), examples, valid, test=test, dist_env=dist_env, device=place,
            embedder=identity.choose_embedder(embedder, resumed),
            parts=[Part(t.fraction, r.train.seed) for t, r in zip(chosen, recipes, strict=True)],
        )  # fmt: skip
        _refuse_folder(out, begun, resume=resume)
        lesson.wait()  # until every process has seen what is there
        for trial, own in zip(chosen, recipes, strict=True):
            goes_on = resume and trial in begun
            place = out / trial.name
            learned = run.learn(lesson, own, place, fraction=trial.fraction, resume=goes_on)
            with closing(Reports(learned, [lesson.sources])) as reports:
                yield Stage(trial, reports)
                for _ in reports:  # whatever was not followed
                    pass
            if reports.last and reports.last.stop_reason.startswith("SIG"):
                return


def _seeded(recipe: TaskConfig, seed: int | None) -> TaskConfig:
    return recipe if seed is None else replace(recipe, train=replace(recipe.train, seed=seed))


def _refuse_folder(out: Path, begun: Sequence[Trial], *, resume: bool) -> None:
    if (out / "recipe.json").is_file():
        raise DataError(f"{out} is a run of its own; name another folder for several")
    if resume and not begun:
        raise DataError(f"{out}: no run to resume there; leave --resume away")
    if begun and not resume:
        raise DataError(
            f"{out} holds runs already ({min(trial.name for trial in begun)}); pass --resume to go "
            "on with them, or name another folder"
        )


def summarise(
    out: Path,
    chosen: Sequence[Trial],
    test: Path | None = None,
    *,
    device: str = "auto",
    ready: Sources | None = None,
) -> Summary:
    """Give the scores of all trials with their means and deviations, and write summary.json.

    `ready` is what they were trained with, where that is open already.
    """
    names = [trial.name for trial in chosen]
    solvers = _opened(out, names, device, ready=ready)
    found = aggregate.summary(
        [
            score._replace(scores={"dev": solved.scores, **score.scores})
            for solved, score in _scored(solvers, "test", test)
        ]
    )
    text = json.dumps(found, indent=2, ensure_ascii=False)
    atomic.write(out / "summary.json", f"{text}\n".encode("utf-8", "replace"))
    return found


def evaluate(
    out: Path, data: Path, *, device: str = "auto", embedder: str | None = None
) -> Summary:
    """Score every trained run of a folder on a file.

    `embedder` is the path of the word vectors or biLM used in training, if moved.
    """
    names = checkpoint.runs_within(out)
    if not names:
        raise ConfigError(f"{out}: no trained runs there; name a folder of several")
    solvers = _opened(out, names, device, embedder=embedder)
    return aggregate.summary([score for _, score in _scored(solvers, "data", data)])


def _opened(
    out: Path,
    names: Sequence[str],
    device: str,
    *,
    embedder: str | None = None,
    ready: Sources | None = None,
) -> Iterator[tuple[Path, str, Solver]]:
    """Open one run after another; what several were trained with is read once."""
    for name in names:
        solved = run.opened(out / name, device, embedder=embedder, ready=ready)
        ready = solved.sources
        yield out / name, name, solved


def _scored(
    solvers: Iterable[tuple[Path, str, Solver]], split: str, data: Path | None
) -> Iterator[tuple[Solver, Scored]]:
    for place, name, solved in solvers:
        described = config.read_json(place / "recipe.json").get("data", {})
        # several runs read the file: its layers are kept
        scores = {} if data is None else {split: run.scored(solved, data, keep=True)}
        yield (
            solved,
            Scored(
                run=name,
                metric=solved.task.metric,
                fraction=described.get("fraction"),
                examples=described.get("examples"),
                seed=solved.config.train.seed,
                scores=scores,
            ),
        )
