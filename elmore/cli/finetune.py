"""elmore finetune [MODEL] SHARDS -o RUN: continue training any model, foreign ones included."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmore.cli.options import (
    Device,
    Json,
    ModelOption,
    Resume,
    RunFolder,
    Settings,
    ShardsArguments,
    take_model,
)
from elmore.cli.tables import print_table

if TYPE_CHECKING:
    from elmore.train.fit import Report


def finetune(
    arguments: ShardsArguments,
    out: RunFolder,
    model: ModelOption = None,
    recipe: Annotated[
        str | None, typer.Option(help="Recipe file (.toml) instead of the default one.")
    ] = None,
    settings: Settings = None,
    resume: Resume = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Fine-tune a model on a prepared corpus; print its perplexity before and after."""
    from elmore.cli.training import is_main_process, report_end, watch
    from elmore.lm import config
    from elmore.lm.finetune import PerplexityChange
    from elmore.lm.finetune import finetune as run

    source, (shards,) = take_model(arguments, model, needed=1)
    sources = [source] if source else []
    chosen = config.read_finetune_recipe(recipe, settings or [])
    changes: list[Any] = []

    def reports() -> "Iterator[Report]":
        for item in run(sources, Path(shards), out, chosen, resume=resume, device=device):
            if isinstance(item, PerplexityChange):
                changes.append(item)
            else:
                yield item

    last = watch("fine-tuning", reports())
    if is_main_process():
        for change in changes:
            print_table([change._asdict()], as_json=json)
    report_end(last, out)
