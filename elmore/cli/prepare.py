"""elmore prepare TEXT -o SHARDS: text to a corpus that a model can be trained on."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from elmore.corpus.shards import Corpus


def prepare(
    files: Annotated[
        list[str],
        typer.Argument(
            help="text, .jsonl or .parquet, also .gz .xz .bz2 .zst; patterns; - for stdin"
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="the folder to write, a new one")
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="each line is a sentence, split on spaces already")
    ] = False,
    wrapped: Annotated[
        bool, typer.Option("--wrapped", help="a sentence may go on in the next line")
    ] = False,
    language: Annotated[str, typer.Option(help="whose abbreviations to know: en, de …")] = "en",
    valid: Annotated[list[str] | None, typer.Option(help="a file of validation text")] = None,
    valid_share: Annotated[
        float, typer.Option(help="of the documents (a blank line ends one) for validation")
    ] = 0.0,
    vocabulary: Annotated[
        Path | None, typer.Option(help="keep this list of words (a file, or a folder with one)")
    ] = None,
    vocabulary_size: Annotated[
        int | None, typer.Option(help="words at most, by falling count", show_default="200000")
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(help="of a word in the vocabulary", show_default="1")
    ] = None,
    column: Annotated[str, typer.Option(help="of .jsonl and .parquet input")] = "text",
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="what to do with invalid UTF-8")
    ] = "strict",
    workers: Annotated[
        int | None, typer.Option(help="processes at work", show_default="one per core")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with an unfinished job")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace OUT")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="only say what is odd about the text; write nothing")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="the table as JSON")] = False,
) -> None:
    """Prepare text for training: sentences, words, counts, a vocabulary, memory-mapped shards."""
    from elmore.cli.progress import showing
    from elmore.cli.tables import print_table
    from elmore.corpus.options import Options
    from elmore.errors import ConfigError

    cut = {"vocabulary_size": vocabulary_size, "min_count": min_count}
    asked = {name: value for name, value in cut.items() if value is not None}
    if vocabulary and asked:
        raise ConfigError("--vocabulary is kept as it is: no --vocabulary-size or --min-count")
    options = Options(
        tokenized=tokenized,
        wrapped=wrapped,
        language=language,
        column=column,
        errors=errors,
        valid_share=valid_share,
        **asked,
    )
    if check:
        from elmore.corpus.check import look_over

        rows = [finding._asdict() for finding in look_over([*files, *(valid or [])], options)]
        print_table(rows if json else _drawn(rows), as_json=json)
        return
    if out is None:
        raise ConfigError("name the folder to write with -o, or pass --check")
    from elmore.corpus.prepare import prepare as run

    try:
        with showing("preparing") as update:
            corpus = run(
                files,
                out,
                options,
                valid=valid or [],
                vocabulary=vocabulary,
                num_workers=workers,
                resume=resume,
                overwrite=overwrite,
                progress=lambda fraction, lines, tokens: update(
                    fraction, lines=lines, tokens=tokens
                ),
            )
    except KeyboardInterrupt as error:
        print("elmore: stopped; the same command with --resume goes on", file=sys.stderr)
        raise typer.Exit(130) from error
    if vocabulary_size and len(corpus.vocabulary) - 3 < vocabulary_size:
        print(
            f"elmore: fewer than {vocabulary_size} words occur often enough: the vocabulary is all "
            "of them",
            file=sys.stderr,
        )
    print_table(_summary(corpus), as_json=json)


def _drawn(rows: list[dict]) -> list[dict]:
    """What is odd and what to do about it, for a person."""
    return [
        {
            "what": row["what"],
            "found": row["found"],
            "": f"! {row['advice']}" if row["odd"] else "",
        }
        for row in rows
    ]


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
