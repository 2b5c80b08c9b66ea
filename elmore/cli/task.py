"""elmore task train, evaluate, predict."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmore.cli.options import Device, Json, Resume, Settings, Tokenized
from elmore.cli.tables import print_findings, print_json, print_table
from elmore.tasks import DEFAULT_EMBEDDER
from elmore.tasks.registry import task_names

if TYPE_CHECKING:
    from elmore.tasks.sweep import Summary
    from elmore.tasks.task import Task
    from elmore.tasks.trained_task import TrainedTask

task = typer.Typer(
    name="task",
    help="Train a model for a task on word vectors, on a biLM, on both or on neither.",
    add_completion=False,
    no_args_is_help=True,
)

_MOVED_EMBEDDER = (
    "New path of the word vectors or the biLM of training, if moved: glove:FILE, elmo:MODEL."
)


@task.command()
def train(
    name: Annotated[str, typer.Argument(help=f"Task: {', '.join(task_names())}.")],
    train: Annotated[Path, typer.Option(help="Training examples.")],
    dev: Annotated[Path, typer.Option(help="Examples to choose the best weights by.")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Run folder to write; required unless --check is given."),
    ] = None,
    test: Annotated[Path | None, typer.Option(help="Examples to score at the end.")] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help="Input vectors: elmo: (the bundled model), elmo:MODEL, none, glove:FILE (also "
            "word2vec:, fasttext:), or both joined by +, as in glove:FILE+elmo:. With --resume, "
            "the default is what the run has recorded.",
            show_default=DEFAULT_EMBEDDER,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe instead of the task's default: paper (the sizes of the paper), or a .toml "
            "file."
        ),
    ] = None,
    settings: Settings = None,
    num_seeds: Annotated[
        int | None,
        typer.Option(
            help="Number of runs with different seeds; prints mean and standard deviation."
        ),
    ] = None,
    train_fractions: Annotated[
        str | None,
        typer.Option(help="Fractions of the training examples to train on, as in 0.01,0.1,1."),
    ] = None,
    resume: Resume = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only report problems in the files; write nothing.")
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train a task on the bundled model, or on what --embedder names."""
    from elmore.cli.training import is_main_process, printing_reports, report_end
    from elmore.errors import ConfigError
    from elmore.tasks.registry import find_task, load_recipe

    task_class = find_task(name)
    chosen = load_recipe(task_class, recipe, settings or [])
    if check:
        files = {"train": train, "dev": dev, "test": test}
        named = {split: path for split, path in files.items() if path is not None}
        _validate(task_class(chosen), named, embedder or DEFAULT_EMBEDDER, json)
        return
    if out is None:
        raise ConfigError("name the run folder with -o, or pass --check")
    from elmore.tasks import train as training
    from elmore.tasks.sweep import list_trials, train_sweep

    trials = None
    if num_seeds is not None or train_fractions is not None:
        fractions = [] if train_fractions is None else _parse_fractions(train_fractions)
        trials = list_trials(chosen, num_seeds=num_seeds, fractions=fractions)
    options: dict[str, Any] = {
        "test": test,
        "embedder": embedder,
        "resume": resume,
        "device": device,
    }
    what, trained, summary = f"training {name}", None, None
    # after a signal, `report_end` exits as the signal asks for
    with (
        printing_reports(show_perplexity=False) as printer,
        suppress(training.TrainingStoppedError),
    ):
        if trials is None:
            trained = training.train(
                *(task_class, chosen, train, dev, out),
                **options,
                on_report=lambda report: printer.add(what, report),
            )
        else:
            summary = train_sweep(
                *(task_class, chosen, train, dev, out, trials),
                **options,
                on_report=lambda trial, report: printer.add(f"{what}, {trial.name}", report),
            )
    report_end(printer.last, out)
    if trained is not None and is_main_process():
        _print_trained(trained, out, test, json)
    if summary is not None and is_main_process():
        _print_summary(summary, json)


def _print_trained(trained: "TrainedTask", out: Path, test: Path | None, as_json: bool) -> None:
    from elmore.tasks.results import TEST_RESULTS
    from elmore.tasks.trained_task import TEST_COUNTS

    scores = {"dev": trained.scores}
    if test is not None:
        scores["test"] = trained.evaluate(
            test, cache_layers=True, counts=out / TEST_COUNTS, results=out / TEST_RESULTS
        )
    layer_weights = trained.layer_weights()
    if as_json:
        layers = {insert_at: numbers._asdict() for insert_at, numbers in layer_weights.items()}
        print_json({**scores, **({"layer_weights": layers} if layers else {})})
        return
    for split, split_scores in scores.items():
        print(f"{split}  {_format_scores(split_scores)}")
    for insert_at, (weights, gamma) in layer_weights.items():
        numbers = " ".join(f"{weight:.3f}" for weight in weights)
        print(f"layer weights at {insert_at}  {numbers}  gamma {gamma:.3f}")


def _validate(task: "Task", files: dict[str, Path], embedder: str, as_json: bool) -> None:
    from elmore.tasks.data.validate import validate_files

    findings = validate_files(task, files, embedder=embedder)
    print_findings([finding._asdict() for finding in findings], as_json=as_json)


def _parse_fractions(text: str) -> list[float]:
    from elmore.errors import ConfigError

    try:
        return [float(part) for part in re.split(r"[,\s]+", text)]
    except ValueError as error:
        raise ConfigError(
            f"--train-fractions: expected numbers separated by commas, as 0.01,0.1,1, found "
            f"{text!r}"
        ) from error


@task.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder written by `elmore task train`.")],
    data: Annotated[Path, typer.Argument(help="Examples to score.")],
    predictions: Annotated[
        Path | None, typer.Option(help="File for the predictions, in the task's format.")
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(help="File for the counts of each example, for tests of significance."),
    ] = None,
    embedder: Annotated[str | None, typer.Option(help=_MOVED_EMBEDDER)] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score a trained task on other examples; for a sweep, score every run of it."""
    from elmore.tasks.checkpoint import find_runs, load_task

    if predictions is None and counts is None and find_runs(run):
        from elmore.tasks.sweep import evaluate_sweep

        _print_summary(evaluate_sweep(run, data, device=device, embedder=embedder), json)
        return
    trained = load_task(run, device=device, embedder=embedder)
    scores = trained.evaluate(data, predictions=predictions, counts=counts)
    if json:
        print_json(scores)
    else:
        print(_format_scores(scores))


@task.command()
def predict(
    run: Annotated[Path, typer.Argument(help="Folder written by `elmore task train`.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts, one per example; - or none reads stdin, one example per line."),
    ] = None,
    tokenized: Tokenized = False,
    embedder: Annotated[str | None, typer.Option(help=_MOVED_EMBEDDER)] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Predict for the given texts, or for the lines of stdin.

    If the examples of the task are documents, a blank line separates them.
    """
    from elmore.errors import ConfigError
    from elmore.tasks.checkpoint import load_task

    for text in texts or []:
        # unlike Path.is_file, this does not fail on a text that is too long for a file name
        if text != "-" and os.path.isfile(text):  # noqa: PTH113
            raise ConfigError(f"{text} is a file, expected a text; pass the file by < {text}")
    trained = load_task(run, device=device, embedder=embedder)
    located = _located_texts(texts or ["-"], trained.task)
    for prediction in trained.predict_located(located, tokenized=tokenized):
        if json:
            print_json(prediction.data)
        else:
            print(prediction.line)


def _located_texts(texts: list[str], task: "Task") -> Iterator[tuple[str, str]]:
    """Yield each text with its position; a - stands for the texts of stdin."""
    from elmore.text.files import Lines

    for number, text in enumerate(texts, start=1):
        if text == "-":
            lines = enumerate(Lines(["-"]), start=1)
            yield from task.split_texts((f"stdin, line {row}", str(line)) for row, line in lines)
        else:
            yield f"text {number}", text


def _format_scores(scores: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.2f}" for name, value in scores.items())


def _print_summary(summary: "Summary", as_json: bool) -> None:
    """Print a line per split, or for several fractions a table of the deciding score."""
    from elmore.tasks.sweep import format_mean_std

    if as_json:
        print_json(summary)
    elif "fraction" in summary["summary"][0]:
        rows = []
        for part in summary["summary"]:
            names = {"fraction": "fraction", "examples": "examples", "num_runs": "runs"}
            row = {names[key]: part[key] for key in names}
            for split, scores in part["scores"].items():
                row[f"{split} {summary['metric']}"] = format_mean_std(scores[summary["metric"]])
            rows.append(row)
        print_table(rows, as_json=False)
    else:
        for split, scores in summary["summary"][0]["scores"].items():
            line = "  ".join(f"{name} {format_mean_std(score)}" for name, score in scores.items())
            print(f"{split}  {line}")
