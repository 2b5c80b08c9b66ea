"""elmore task train, evaluate, predict: what vectors are worth to a task."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

task = typer.Typer(
    name="task",
    help="Train a model for a task on word vectors, on a biLM, on both or on neither.",
    add_completion=False,
    no_args_is_help=True,
)


@task.command()
def train(
    name: Annotated[str, typer.Argument(help="ner or pos")],
    train: Annotated[Path, typer.Option(help="examples to learn from")],
    dev: Annotated[Path, typer.Option(help="examples to choose the best weights by")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the run folder")],
    test: Annotated[Path | None, typer.Option(help="examples to score at the end")] = None,
    embedder: Annotated[
        str, typer.Option(help="none, glove:FILE, elmo:MODEL or glove:FILE+elmo:MODEL")
    ] = "none",
    recipe: Annotated[
        Path | None, typer.Option(help="a .toml file instead of the task's own")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, over the recipe")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with an unfinished run")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="the result as JSON")] = False,
) -> None:
    """Train a task; `elmo:` alone is the model that comes with the package."""
    import json as writer

    from elmore.cli.training import end, follow, speaks
    from elmore.tasks import run, storage
    from elmore.tasks import task as tasks

    kind = tasks.find(name)
    chosen = tasks.recipe(kind, recipe, settings or [])
    if test:
        kind(chosen).read(test)  # a slip of the pen shows now, not after the training
    reports = run.train(
        kind, chosen, train, dev, out, embedder=embedder, resume=resume, device=device
    )
    end(follow(f"training {name}", reports, of_text=False), out)
    if not speaks():
        return
    best = storage.load(out, device="cpu")
    found = {"dev": best.scores}
    if test:
        found["test"] = run.evaluate(out, test, device=device)
    shares = best.learner.embedding.shares()
    if json:
        layers = {place: share._asdict() for place, share in shares.items()}
        print(writer.dumps({**found, **({"layers": layers} if layers else {})}))
        return
    for split, scores in found.items():
        print(f"{split}  {_line(scores)}")
    for place, (weights, gamma) in shares.items():
        print(f"layers at {place}  {' '.join(f'{w:.3f}' for w in weights)}  gamma {gamma:.3f}")


@task.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="folder written by `elmore task train`")],
    data: Annotated[Path, typer.Argument(help="examples to score on")],
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="the scores as JSON")] = False,
) -> None:
    """Score a trained task on other examples."""
    import json as writer

    from elmore.tasks.run import evaluate as measure

    scores = measure(run, data, device=device)
    print(writer.dumps(scores) if json else _line(scores))


@task.command()
def predict(
    run: Annotated[Path, typer.Argument(help="folder written by `elmore task train`")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="each an example; - or nothing: the lines of stdin")
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="the input is split on spaces already")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
) -> None:
    """Predict for texts, one a line."""
    import json as writer

    from elmore.errors import ConfigError
    from elmore.tasks.run import predict as predictions

    for text in texts or []:
        if text != "-" and Path(text).is_file():
            raise ConfigError(f"{text} is a file, and a text was expected; pass it by < {text}")
    cut = str.split if tokenized else None
    for found in predictions(run, _texts(texts or ["-"]), tokenize=cut, device=device):
        print(writer.dumps(found.data, ensure_ascii=False) if json else found.line)


def _texts(texts: list[str]) -> Iterator[str]:
    """Give what was typed, and the lines of stdin where a - stands."""
    from elmore.text.files import Lines

    for text in texts:
        yield from map(str, Lines(["-"])) if text == "-" else (text,)


def _line(scores: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
