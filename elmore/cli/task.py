"""elmore task train, evaluate, predict: what vectors are worth to a task."""

import json as writer
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from elmore.tasks import DEFAULT_EMBEDDER
from elmore.tasks.registry import task_names

if TYPE_CHECKING:
    from elmore.tasks.aggregate import Summary
    from elmore.tasks.sweep import Trial
    from elmore.tasks.task import Task, TaskConfig

task = typer.Typer(
    name="task",
    help="Train a model for a task on word vectors, on a biLM, on both or on neither.",
    add_completion=False,
    no_args_is_help=True,
)

_MOVED_EMBEDDER = (
    "path of the word vectors or biLM used in training, if moved: glove:FILE, elmo:MODEL"
)


@task.command()
def train(
    name: Annotated[str, typer.Argument(help=", ".join(task_names()))],
    train: Annotated[Path, typer.Option(help="examples to learn from")],
    dev: Annotated[Path, typer.Option(help="examples to choose the best weights by")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="the run folder")] = None,
    test: Annotated[Path | None, typer.Option(help="examples to score at the end")] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help="elmo: (the model of the package), elmo:MODEL, none, glove:FILE (word2vec:, "
            "fasttext:), or both with +, as in glove:FILE+elmo:; with --resume, the default is the "
            "one the run has recorded",
            show_default=DEFAULT_EMBEDDER,
        ),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="a .toml file instead of the task's own")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, over the recipe")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="train so often, and give mean and deviation")
    ] = None,
    fractions: Annotated[
        str | None, typer.Option(help="of the training examples, as in 0.01,0.1,1")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with an unfinished run")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="only say what is odd about the files; write nothing")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="the result as JSON")] = False,
) -> None:
    """Train a task on the model that comes with the package, or on what --embedder names."""
    from elmore.errors import ConfigError
    from elmore.tasks import registry as tasks

    kind = tasks.find_task(name)
    chosen = tasks.load_recipe(kind, recipe, settings or [])
    if check:
        files = {"train": train, "dev": dev, "test": test}
        named = {split: path for split, path in files.items() if path is not None}
        _look_over(kind(chosen), named, DEFAULT_EMBEDDER if embedder is None else embedder, json)
        return
    if out is None:
        raise ConfigError("name the run folder with -o, or pass --check")
    asked = _Asked(kind, chosen, train, dev, out)
    how = {"test": test, "embedder": embedder, "resume": resume, "device": device}
    if seeds is None and fractions is None:
        _train_once(asked, how, json)
    else:
        from elmore.tasks import sweep

        parts = [] if fractions is None else _numbers(fractions)
        _train_often(asked, sweep.trials(chosen, seeds=seeds, fractions=parts), how, json)


class _Asked(NamedTuple):
    """What is to be trained on what, and where it goes."""

    kind: "type[Task]"
    recipe: "TaskConfig"
    train: Path
    dev: Path
    out: Path


def _train_once(asked: _Asked, how: dict[str, Any], as_json: bool) -> None:
    from elmore.cli.training import is_main_process, report_end, watch
    from elmore.tasks import run

    kind, out = asked.kind, asked.out
    reports = run.train(*asked, **how)
    report_end(watch(f"training {kind.name}", reports, show_perplexity=False), out)
    if not is_main_process():
        return
    best = run.opened(out, how["device"], ready=reports.sources)
    found = {"dev": best.scores}
    if how["test"]:
        found["test"] = run.scored(best, how["test"], keep=True)
    shares = best.learner.embedding.shares()
    if as_json:
        layers = {place: share._asdict() for place, share in shares.items()}
        print(_dumped({**found, **({"layers": layers} if layers else {})}))
        return
    for split, scores in found.items():
        print(f"{split}  {_line(scores)}")
    for place, (weights, gamma) in shares.items():
        print(f"layers at {place}  {' '.join(f'{w:.3f}' for w in weights)}  gamma {gamma:.3f}")


def _train_often(asked: _Asked, trials: list["Trial"], how: dict[str, Any], as_json: bool) -> None:
    from elmore.cli.training import is_main_process, report_end, watch
    from elmore.tasks import sweep

    sources = None
    with closing(sweep.train(*asked, trials, **how)) as stages:
        for trial, reports in stages:
            sources = reports.sources
            what = f"training {asked.kind.name}, {trial.name}"
            report_end(watch(what, reports, show_perplexity=False), asked.out / trial.name)
    if is_main_process():
        summary = sweep.summarise(
            asked.out, trials, how["test"], device=how["device"], ready=sources
        )
        _print_summary(summary, as_json)


def _look_over(task: "Task", files: dict[str, Path], embedder: str, as_json: bool) -> None:
    from elmore.cli.tables import print_table
    from elmore.tasks.data.validate import look_over

    findings = look_over(task, files, embedder=embedder)
    rows = [finding._asdict() for finding in findings]
    for row in [] if as_json else rows:
        odd, advice = row.pop("odd"), row.pop("advice")
        row[""] = f"! {advice}" if odd else ""
    print_table(rows, as_json=as_json)


def _numbers(text: str) -> list[float]:
    from elmore.errors import ConfigError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"--fractions: expected numbers with commas between them, as 0.01,0.1,1, found {text!r}"
        ) from error


@task.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="folder written by `elmore task train`")],
    data: Annotated[Path, typer.Argument(help="examples to score on")],
    predictions: Annotated[
        Path | None, typer.Option(help="a file for what was predicted, in the task's format")
    ] = None,
    embedder: Annotated[str | None, typer.Option(help=_MOVED_EMBEDDER)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="the scores as JSON")] = False,
) -> None:
    """Score a trained task on other examples; where several were trained, every one."""
    from elmore.tasks import checkpoint, sweep
    from elmore.tasks.run import evaluate as measure

    if predictions is None and checkpoint.runs_within(run):
        _print_summary(sweep.evaluate(run, data, device=device, embedder=embedder), json)
        return
    scores = measure(run, data, device=device, predictions=predictions, embedder=embedder)
    print(_dumped(scores) if json else _line(scores))


@task.command()
def predict(
    run: Annotated[Path, typer.Argument(help="folder written by `elmore task train`")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="each an example; - or nothing: stdin, an example a line"),
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="the input is split on spaces already")
    ] = False,
    embedder: Annotated[str | None, typer.Option(help=_MOVED_EMBEDDER)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
) -> None:
    """Predict for texts, those that are typed or the lines of stdin.

    A line of stdin is an example; of a task whose examples are documents, the lines up to a blank
    one are.
    """
    from elmore.errors import ConfigError
    from elmore.tasks.run import opened, predicted

    for text in texts or []:
        # unlike Path.is_file, this takes a text that is too long for a name for none
        if text != "-" and os.path.isfile(text):  # noqa: PTH113
            raise ConfigError(f"{text} is a file, and a text was expected; pass it by < {text}")
    solved = opened(run, device, embedder=embedder)
    for found in predicted(solved, _texts(texts or ["-"], solved.task), tokenized=tokenized):
        print(_dumped(found.data) if json else found.line)


def _texts(texts: list[str], task: "Task") -> Iterator[tuple[str, str]]:
    """Give what was typed, and where a - stands what the task makes of stdin; both with a place."""
    from elmore.text.files import Lines

    for number, text in enumerate(texts, start=1):
        if text == "-":
            lines = enumerate(Lines(["-"]), start=1)
            yield from task.texts((f"stdin, line {place}", str(line)) for place, line in lines)
        else:
            yield f"text {number}", text


def _line(scores: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.2f}" for name, value in scores.items())


def _print_summary(summary: "Summary", as_json: bool) -> None:
    """Give a line for each split, or, of several fractions, a table of the score that counts."""
    from elmore.cli.tables import print_table
    from elmore.tasks.aggregate import shown

    if as_json:
        print(_dumped(summary))
    elif "fraction" in summary["summary"][0]:
        rows = []
        for part in summary["summary"]:
            names = {"fraction": "fraction", "examples": "examples", "num_runs": "runs"}
            row = {names[key]: part[key] for key in names}
            for split, scores in part["scores"].items():
                row[f"{split} {summary['metric']}"] = shown(scores[summary["metric"]])
            rows.append(row)
        print_table(rows, as_json=False)
    else:
        for split, scores in summary["summary"][0]["scores"].items():
            print(f"{split}  {'  '.join(f'{k} {shown(v)}' for k, v in scores.items())}")


def _dumped(data: object) -> str:
    return writer.dumps(data, ensure_ascii=False)
