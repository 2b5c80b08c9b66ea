"""elmore pretrain RECIPE SHARDS -o RUN: train a biLM from nothing."""

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
        list[str] | None, typer.Option("--set", help="section.key=value, over the recipe")
    ] = None,
    init: Annotated[
        list[str] | None, typer.Option(help="start from this model's weights, with a new optimiser")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with an unfinished run")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
) -> None:
    """Train a language model on a prepared text; the same command runs under torchrun."""
    from elmore.cli.training import end, follow
    from elmore.lm import config
    from elmore.lm.pretrain import pretrain as run

    chosen = config.pretraining(recipe, settings or [])
    reports = run(chosen, shards, out, init=init or [], resume=resume, device=device)
    end(follow("pretraining", reports), out)
