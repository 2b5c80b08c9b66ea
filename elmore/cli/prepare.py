"""elmore prepare TEXT -o SHARDS: prepare text as a corpus for training."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmore.cli.interrupts import exit_on_interrupt
from elmore.cli.options import Column, Errors, Files, Json, Overwrite, Resume
from elmore.cli.tables import print_findings, print_table

if TYPE_CHECKING:
    from elmore.corpus.shards import Corpus


def prepare(
    files: Files,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder to write; required unless --check is given."),
    ] = None,
    tokenized: Annotated[
        bool,
        typer.Option(
            "--tokenized", help="Each line is a tokenised sentence: split it on spaces only."
        ),
    ] = False,
    hard_wrapped: Annotated[
        bool, typer.Option("--hard-wrapped", help="A sentence may continue on the next line.")
    ] = False,
    language: Annotated[
        str,
        typer.Option(
            help="Code of the language (en, de …), for its abbreviations and the model card.",
            show_default="unknown, read as en",
        ),
    ] = "",
    valid: Annotated[
        list[str] | None, typer.Option(help="File of validation text; may be repeated.")
    ] = None,
    valid_fraction: Annotated[
        float,
        typer.Option(
            help="Fraction of the documents for validation; a blank line ends a document."
        ),
    ] = 0.0,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Use this vocabulary: a file, or a folder with one.")
    ] = None,
    vocabulary_size: Annotated[
        int | None, typer.Option(help="Maximum number of words, by count.", show_default="200000")
    ] = None,
    min_count: Annotated[
        int | None,
        typer.Option(help="Minimum count of a word in the vocabulary.", show_default="1"),
    ] = None,
    column: Column = "text",
    errors: Errors = "strict",
    workers: Annotated[
        int | None, typer.Option(help="Number of processes.", show_default="one per core")
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only report what is suspicious about the text; write nothing."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Prepare text for training: split it into sentences and words, and write a corpus folder."""
    from elmore.cli.progress import show_progress
    from elmore.corpus.options import PrepareOptions
    from elmore.errors import ConfigError

    limits = {"vocabulary_size": vocabulary_size, "min_count": min_count}
    limits = {name: value for name, value in limits.items() if value is not None}
    if vocabulary and limits:
        raise ConfigError("--vocabulary cannot be combined with --vocabulary-size or --min-count")
    options = PrepareOptions(
        tokenized=tokenized,
        hard_wrapped=hard_wrapped,
        language=language,
        column=column,
        errors=errors,
        valid_fraction=valid_fraction,
        **limits,
    )
    if check:
        from elmore.corpus.lint import lint_corpus

        findings = lint_corpus([*files, *(valid or [])], options)
        print_findings([finding._asdict() for finding in findings], as_json=json)
        return
    if out is None:
        raise ConfigError("pass the folder to write with -o, or --check")
    from elmore.corpus.prepare import prepare as run

    advice = "continue with the same command and --resume"
    with exit_on_interrupt(advice), show_progress("preparing") as update:
        corpus = run(
            files,
            out,
            options,
            valid=valid or [],
            vocabulary=vocabulary,
            num_workers=workers,
            resume=resume,
            overwrite=overwrite,
            progress=lambda fraction, lines, tokens: update(fraction, lines=lines, tokens=tokens),
        )
    if vocabulary_size and len(corpus.vocabulary) - 3 < vocabulary_size:
        print(
            f"elmore: fewer than {vocabulary_size} words are frequent enough: the vocabulary "
            "contains all of them",
            file=sys.stderr,
        )
    print_table(_summary(corpus), as_json=json)


def _summary(corpus: "Corpus") -> list[dict]:
    return [
        {
            "split": name,
            "words": split["num_words"],
            "sentences": split["num_sentences"],
            "unknown words": f"{100 * split['num_unknown'] / split['num_words']:.2f} %",
            "word types": corpus.index["num_types"],
            "vocabulary": len(corpus.vocabulary),
        }
        for name, split in corpus.index["splits"].items()
        if split["num_words"]
    ]
