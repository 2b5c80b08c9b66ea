"""elmore pretrain RECIPE SHARDS -o RUN: train a biLM from scratch."""

from typing import Annotated

import typer

from elmore import recipes
from elmore.cli.options import MODEL, Device, Resume, RunFolder, Settings, Shards


def pretrain(
    recipe: Annotated[
        str,
        typer.Argument(
            help=f"Recipe: {', '.join(recipes.list_recipes('bilm'))}, or a .toml file. A recipe "
            "sets the size and the training; the published model of the same name is not used."
        ),
    ],
    shards: Shards,
    out: RunFolder,
    settings: Settings = None,
    init: Annotated[
        list[str] | None,
        typer.Option(help=f"Start from the weights of a model, with a new optimizer. {MODEL}"),
    ] = None,
    resume: Resume = False,
    device: Device = "auto",
) -> None:
    """Train a language model on a prepared corpus; also runs under torchrun."""
    from elmore.cli.training import report_end, watch
    from elmore.lm import config
    from elmore.lm.pretrain import pretrain as run

    chosen = config.read_pretrain_recipe(recipe, settings or [])
    reports = run(chosen, shards, out, init=init or (), resume=resume, device=device)
    report_end(watch("pretraining", reports), out)
