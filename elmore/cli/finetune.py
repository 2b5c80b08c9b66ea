"""elmore finetune MODEL SHARDS -o RUN: continue training any model, foreign ones included."""

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
    recipe: Annotated[
        str | None, typer.Option(help="a .toml file instead of the default recipe")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="section.key=value, replaces a value of the recipe"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue an unfinished run")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Fine-tune a model on a prepared corpus; print its perplexity before and after."""
    from elmore.cli.tables import print_table
    from elmore.cli.training import is_main_process, report_end, watch
    from elmore.lm import config
    from elmore.lm.finetune import PerplexityChange
    from elmore.lm.finetune import finetune as run

    chosen = config.read_finetune_recipe(recipe, settings or [])
    changes: list[Any] = []

    def reports() -> "Iterator[Report]":
        for item in run([model], shards, out, chosen, resume=resume, device=device):
            if isinstance(item, PerplexityChange):
                changes.append(item)
            else:
                yield item

    last = watch("fine-tuning", reports())
    if is_main_process():
        for change in changes:
            print_table([change._asdict()], as_json=json)
    report_end(last, out)
