"""elmore pretrain RECIPE SHARDS -o RUN: train a biLM from scratch."""

from pathlib import Path
from typing import Annotated

import typer

from elmore import recipes


def pretrain(
    recipe: Annotated[
        str, typer.Argument(help=f"{', '.join(recipes.list_recipes('bilm'))}, or a .toml file")
    ],
    shards: Annotated[Path, typer.Argument(help="folder written by `elmore prepare`")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the run folder")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="section.key=value, replaces a value of the recipe"),
    ] = None,
    init: Annotated[
        list[str] | None, typer.Option(help="start from this model's weights, with a new optimizer")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue an unfinished run")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
) -> None:
    """Train a language model on a prepared corpus; also runs under torchrun."""
    from elmore.cli.training import report_end, watch
    from elmore.lm import config
    from elmore.lm.pretrain import pretrain as run

    chosen = config.read_pretrain_recipe(recipe, settings or [])
    reports = run(chosen, shards, out, init=init or (), resume=resume, device=device)
    report_end(watch("pretraining", reports), out)
