"""elmore finetune MODEL SHARDS -o RUN: carry on from any model, foreign ones included."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from elmore.train.fit import Report


def finetune(
    model: Annotated[str, typer.Argument(help="a name, a folder, a zip, weights.hdf5 …")],
    shards: Annotated[Path, typer.Argument(help="folder written by `elmore prepare`")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the run folder")],
    recipe: Annotated[str | None, typer.Option(help="a .toml file instead of the usual")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, over the recipe")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with an unfinished run")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="the result as JSON")] = False,
) -> None:
    """Fine-tune a model on a prepared text, and say what that does to the perplexity."""
    from elmore.cli.tables import print_table
    from elmore.cli.training import end, follow, speaks
    from elmore.lm import config
    from elmore.lm.finetune import Measured
    from elmore.lm.finetune import finetune as run

    chosen = config.finetuning(recipe, settings or [])
    measured: list[Any] = []

    def reports() -> "Iterator[Report]":
        for item in run([model], shards, out, chosen, resume=resume, device=device):
            if isinstance(item, Measured):
                measured.append(item)
            else:
                yield item

    last = follow("fine-tuning", reports())
    if speaks():
        for found in measured:
            print_table([found._asdict()], as_json=json)
    end(last, out)
