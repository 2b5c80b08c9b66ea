"""Arguments and options that several commands share, so that their help says the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

MODEL = (
    "A name from `elmore models`, a model or run folder, a zip, or weights.hdf5 with options.json "
    "beside it."
)
FILES = (
    "Text, or a table: .jsonl .csv .tsv .parquet; also .gz .xz .bz2 .zst; patterns such as "
    "'*.txt'; - is stdin."
)
_BUNDLED = "the bundled English model"

ModelArgument = Annotated[str, typer.Argument(help=MODEL)]
DefaultModelArgument = Annotated[
    list[str] | None, typer.Argument(help=MODEL, show_default=_BUNDLED)
]
ModelOption = Annotated[str | None, typer.Option(help=MODEL, show_default=_BUNDLED)]
ShardsArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODEL] SHARDS",
        help="The model, unless --model names it, and a folder written by `elmore prepare`.",
    ),
]
ModelsOption = Annotated[
    list[str] | None,
    typer.Option(help=f"{MODEL} Give it twice to name both files.", show_default=_BUNDLED),
]
Vocabulary = Annotated[
    Path | None, typer.Option(help="Vocabulary of an imported model with word ids or a softmax.")
]
InitialState = Annotated[
    Literal["zero", "warm"],
    typer.Option(help="LSTM state before the first token: zeros, or the stored warm-up state."),
]
Precision = Annotated[
    Literal["exact", "fast"], typer.Option(help="Use bf16 or int8 (fast) where that is quicker.")
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]

Files = Annotated[list[str], typer.Argument(help=FILES)]
DefaultFiles = Annotated[list[str] | None, typer.Argument(help=FILES, show_default="stdin")]
Tokenized = Annotated[
    bool, typer.Option("--tokenized", help="The input is tokenised: split it on spaces only.")
]
Column = Annotated[str, typer.Option(help="Text column of a table.")]
Errors = Annotated[
    Literal["strict", "replace"], typer.Option(help="Stop at invalid UTF-8, or replace it.")
]

Shards = Annotated[Path, typer.Argument(help="Folder written by `elmore prepare`.")]
RunFolder = Annotated[Path, typer.Option("-o", "--out", help="Run folder to write.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Replace a value of the recipe: section.key=value."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an unfinished job or run.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def take_model(
    arguments: Sequence[str], option: str | None, *, needed: int, more: bool = False
) -> tuple[str | None, list[str]]:
    """Split `[MODEL] REST` into the model and the rest.

    Without `--model`, the first argument is the model if there is one too many, or, where `more`
    arguments may follow, if it is a model or no file. Otherwise it is None, the bundled model: its
    name would be that of a folder that happens to be called so.

    Args:
        arguments: The arguments of a command.
        option: The value of `--model`.
        needed: The number of arguments without MODEL, or the least number with `more`.
        more: Whether any number of arguments may follow.
    """
    from elmore.weights import pretrained

    rest = list(arguments)
    model = option
    if model is None and len(rest) > needed:
        is_file = rest[0] == "-" or Path(rest[0]).exists() or any(c in rest[0] for c in "*?[")
        if not more or not is_file or pretrained.is_model(rest[0]):
            model = rest.pop(0)
    if len(rest) < needed or (len(rest) > needed and not more):
        raise typer.BadParameter(f"expected {needed} after the model, found {len(rest)}: {rest}")
    return model or None, rest
