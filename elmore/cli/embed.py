"""elmore embed FILES -o OUT: vectors for every line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmore.cli.interrupts import exit_on_interrupt
from elmore.cli.options import (
    Column,
    DefaultFiles,
    Device,
    Errors,
    InitialState,
    ModelsOption,
    Overwrite,
    Precision,
    Resume,
    Tokenized,
)
from elmore.cli.tables import escape_breaks

if TYPE_CHECKING:
    import numpy as np


def embed(
    files: DefaultFiles = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Output file: .hdf5, .parquet, .npz or .jsonl.",
            show_default="text on stdout",
        ),
    ] = None,
    model: ModelsOption = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Layers: average, all, top, a number, cloze (the top layer on both sides of a "
            "word, without the word), or whitened (the whitening of the model).",
            show_default="average, or those of the pooling",
        ),
    ] = None,
    direction: Annotated[
        Literal["both", "forward", "backward"],
        typer.Option(help="Read in both directions, or in one, which takes half the time."),
    ] = "both",
    tokenized: Tokenized = False,
    split: Annotated[
        bool, typer.Option("--split", help="Embed each sentence of a line on its own.")
    ] = False,
    pool: Annotated[
        str | None,
        typer.Option(
            help="Return one vector per line: the mean or max of its tokens, or a pooling of the "
            "model by its name (see 'elmore info')."
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16"], typer.Option(help="Number format of the output.")
    ] = "float32",
    precision: Precision = "exact",
    device: Device = "auto",
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Use this machine, or a Ray cluster.")
    ] = "local",
    initial_state: InitialState = "zero",
    token_budget: Annotated[
        int | None,
        typer.Option(help="Tokens held in memory at a time.", show_default="depends on the device"),
    ] = None,
    column: Column = "text",
    errors: Errors = "strict",
    resume: Resume = False,
    overwrite: Overwrite = False,
    sentence_index: Annotated[
        bool,
        typer.Option(
            "--sentence-index/--no-sentence-index",
            help="Write sentence_to_index into .hdf5 and .npz.",
        ),
    ] = True,
) -> None:
    """Embed every line of a text: one vector per token, or with --pool one per line."""
    from elmore.cli.progress import show_download, show_progress
    from elmore.embed.jobs import job as jobs
    from elmore.embed.loading import load
    from elmore.errors import ConfigError
    from elmore.text.files import Lines

    if engine == "ray" and (out is None or resume):
        raise ConfigError("--engine ray writes a whole file: pass -o, and not --resume")
    if out is None and (resume or overwrite):
        raise ConfigError("--resume and --overwrite need an output file; pass -o")
    lines = Lines(files or ["-"], errors=errors, column=column)
    _refuse_input(out, lines.names)
    with show_download() as progress:
        elmo = load(
            *(model or []),
            device="cpu" if engine == "ray" else device,
            precision="exact" if engine == "ray" else precision,
            initial_state=initial_state,
            token_budget=token_budget,
            progress=progress,
        )
    job = jobs.describe_job(
        elmo,
        layers=layers,
        pool=pool,
        direction=direction,
        dtype=dtype,
        tokenized=tokenized,
        split=split,
        initial_state=initial_state,
        errors=errors,
        column=column,
        precision=precision if engine == "ray" else None,
    )
    if out is None:
        for _, tokens, vectors in jobs.embed_lines(elmo, lines, job):
            _print(tokens, vectors, pooled=pool is not None)
        return
    advice = "" if engine == "ray" else "run the same command with --resume to continue"
    with exit_on_interrupt(advice), show_progress("embedding") as update:

        def progress_(done: int, tokens: int) -> None:
            update(lines.fraction_after(done), lines=done, tokens=tokens)

        if engine == "ray":
            from elmore.embed.jobs.ray import run_on_ray

            run_on_ray(
                elmo,
                lines.rows(),
                out,
                job,
                device=device,
                overwrite=overwrite,
                progress=progress_,
            )
        else:
            jobs.run_job(
                elmo,
                lines.rows(),
                out,
                job,
                resume=resume,
                overwrite=overwrite,
                sentence_index=sentence_index,
                progress=progress_,
            )
    print(out)


def _refuse_input(out: Path | None, files: list[str]) -> None:
    """Raise ConfigError if the output file is an input file."""
    from elmore.errors import ConfigError

    for name in files:
        if out is not None and out.exists() and Path(name).exists() and out.samefile(name):
            raise ConfigError(f"{out} is an input file; pass another name")


def _print(tokens: "list[str]", vectors: "np.ndarray", *, pooled: bool) -> None:
    """Print a line of numbers, or one line per token followed by an empty line."""
    if pooled:
        print(*(f"{value:.6g}" for value in vectors))
        return
    for number, word in enumerate(tokens):
        print(escape_breaks(word), *(f"{value:.6g}" for value in vectors[..., number, :].ravel()))
    print()
