"""elmore score MODEL TEXT: per-token log-probabilities of both directions."""

import sys
from collections.abc import Iterator
from typing import Annotated, Literal

import typer


def score(
    model: Annotated[str, typer.Argument(help="a name, a model folder, or a run")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="text, .jsonl or .parquet, also packed; - or nothing for stdin"),
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="the input is split on spaces already")
    ] = False,
    column: Annotated[str, typer.Option(help="of .jsonl and .parquet input")] = "text",
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="what to do with invalid UTF-8")
    ] = "strict",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
) -> None:
    """Say how likely each word was: natural logarithms, given what precedes and what follows.

    One word a line: the word, forward, backward, and ? where the softmax does not know it (it is
    scored as <UNK>). An empty line ends a text.
    """
    import json as writer

    from elmore.cli.progress import showing
    from elmore.lm import scoring
    from elmore.text import tokenizers
    from elmore.text.files import Lines
    from elmore.train.distributed import started
    from elmore.weights import pretrained

    lines = Lines(files or ["-"], errors=errors, column=column)
    bundle = pretrained.load(model)
    _, softmax = scoring.language_model(bundle)

    def sentences() -> Iterator[list[str]]:
        for line in lines:
            if isinstance(line, str):
                words = line.split() if tokenized else tokenizers.penn(line).words
                yield words
            else:
                yield line

    watched = sys.stdout.isatty()  # then the words themselves are the progress
    with started(device) as (_, place), showing("scoring") as update:
        bundle.model.to(place)
        softmax.to(place)
        for number, found in enumerate(scoring.score(bundle, sentences())):
            if not watched:
                update(lines.fraction, lines=number)
            rows = list(zip(*found, strict=True))
            if json:
                named = {key: list(value) for key, value in found._asdict().items()}
                print(writer.dumps({"line": number, **named}, ensure_ascii=False))
                continue
            for word, forward, backward, known in rows:
                print(f"{word}\t{forward:.4f}\t{backward:.4f}{'' if known else chr(9) + '?'}")
            print()
