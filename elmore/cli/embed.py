"""elmore embed FILES -o OUT: vectors for every line."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    import numpy as np


def embed(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="text, .jsonl or .parquet, also .gz .xz .bz2 .zst; patterns; - for stdin"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help=".hdf5, .parquet, .npz, .jsonl; without: stdout"),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="a name, a folder, a zip …")] = None,
    layers: Annotated[str, typer.Option(help="average, all, top, or a number")] = "average",
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="the input is split on spaces already")
    ] = False,
    split: Annotated[bool, typer.Option("--split", help="sentences run on their own")] = False,
    pool: Annotated[Literal["mean", "max"] | None, typer.Option(help="one vector per line")] = None,
    dtype: Annotated[Literal["float32", "float16"], typer.Option(help="of vectors")] = "float32",
    precision: Annotated[
        Literal["exact", "fast"], typer.Option(help="fast: bf16 or int8 where quicker")
    ] = "exact",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="this machine, or a Ray cluster")
    ] = "local",
    initial_state: Annotated[Literal["zero", "warm"], typer.Option(help="to start from")] = "zero",
    token_budget: Annotated[
        int | None, typer.Option(help="tokens held at a time; by default what suits the device")
    ] = None,
    column: Annotated[str, typer.Option(help="of .jsonl and .parquet input")] = "text",
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="what to do with invalid UTF-8")
    ] = "strict",
    resume: Annotated[bool, typer.Option("--resume", help="go on with an unfinished job")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace OUT")] = False,
    sentence_index: Annotated[
        bool, typer.Option("--sentence-index/--no-sentence-index", help="in .hdf5 and .npz")
    ] = True,
) -> None:
    """Embed every line of a text: vectors of its words, or one vector for all."""
    from elmore.cli.progress import showing, showing_download
    from elmore.embed.jobs import job as jobs
    from elmore.embed.loading import load
    from elmore.errors import ConfigError
    from elmore.text.files import Lines

    if engine == "ray" and (out is None or resume):
        raise ConfigError("--engine ray writes a file, and from its start: -o, and no --resume")
    if out is None and (resume or overwrite):
        raise ConfigError("--resume and --overwrite are about a file; name it with -o")
    _refuse_input(out, files or [])
    lines = Lines(files or ["-"], errors=errors, column=column)
    with showing_download() as progress:
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
    try:
        with showing("embedding") as update:

            def progress_(done: int, tokens: int) -> None:
                update(lines.fraction, lines=done, tokens=tokens)

            if engine == "ray":
                from elmore.embed.jobs.ray import run_on_ray

                run_on_ray(
                    elmo, lines, out, job, device=device, overwrite=overwrite, progress=progress_
                )
            else:
                jobs.run_job(
                    elmo,
                    lines,
                    out,
                    job,
                    resume=resume,
                    overwrite=overwrite,
                    sentence_index=sentence_index,
                    progress=progress_,
                )
    except KeyboardInterrupt as error:
        again = "" if engine == "ray" else "; the same command with --resume goes on"
        print(f"elmore: stopped{again}", file=sys.stderr)
        raise typer.Exit(130) from error
    print(out)


def _refuse_input(out: Path | None, files: list[str]) -> None:
    """Refuse to write over what is read."""
    from elmore.errors import ConfigError

    for name in files:
        if out is not None and out.exists() and Path(name).exists() and out.samefile(name):
            raise ConfigError(f"{out} is the input too; pass another name")


def _print(tokens: "list[str]", vectors: "np.ndarray", *, pooled: bool) -> None:
    """Print a line of numbers, or a line per word and an empty one after them."""
    if pooled:
        print(*(f"{value:.6g}" for value in vectors))
        return
    for number, word in enumerate(tokens):
        print(word, *(f"{value:.6g}" for value in vectors[..., number, :].ravel()))
    print()
