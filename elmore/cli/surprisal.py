"""elmore surprisal [MODEL] TEXT: a table of the surprisal of each word, for reading research."""

import csv
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elmore.cli.options import FILES, Device, Errors, Json, ModelOption, Tokenized, take_model
from elmore.cli.tables import print_json

if TYPE_CHECKING:
    from elmore.lm.surprisal import WordSurprisal
    from elmore.lm.surprisal_table import Measure, Row
    from elmore.text.written_words import WrittenText


def surprisal(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [FILES]...", help=f"The model, and {FILES}"),
    ] = None,
    model: ModelOption = None,
    context: Annotated[
        str,
        typer.Option(help="What is read beside a word: sentence, text, or a number of words."),
    ] = "sentence",
    column: Annotated[
        str, typer.Option(help="Column of texts or words in .csv, .tsv, .jsonl and .parquet input.")
    ] = "text",
    format: Annotated[
        Literal["csv", "tsv"] | None,
        typer.Option(
            help="Format of a table, such as one from stdin.",
            show_default="by the name of the file",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(help="A row of the table is a word; this column tells texts apart."),
    ] = None,
    spillover: Annotated[
        int, typer.Option(min=0, help="Repeat the columns of the N words before.")
    ] = 2,
    prefix: Annotated[str, typer.Option(help="Put this before the names of the columns.")] = "",
    language: Annotated[str, typer.Option(help="Language of the abbreviations: en, de …")] = "en",
    tokenized: Tokenized = False,
    errors: Errors = "strict",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Print a table with the surprisal of each word, as it is written, in bits.

    A .csv or .tsv table keeps its columns. A cell of --column is a text, whose row is repeated for
    each of its words; or with --by a word of a text, whose rows have the same value there.
    Otherwise a line is a text. Offsets and numbers count from 0.
    """
    from elmore.cli.progress import show_progress
    from elmore.embed import networks
    from elmore.errors import ConfigError
    from elmore.lm import scoring
    from elmore.lm import surprisal as measures
    from elmore.weights import pretrained

    measures.check_context(context)
    if not prefix.isprintable():
        raise ConfigError(f"--prefix {prefix!r}: expected printable characters")
    source, files = take_model(arguments or [], model, needed=0, more=True)
    bundle = pretrained.load(*([source] if source else []))
    _, softmax = scoring.require_softmax(bundle)
    for module in (bundle.model, softmax.softmax):
        networks.move(module, device)
    num_words = 0
    with show_progress("measuring") as update:

        def measure(text: "WrittenText", done: float | None) -> "list[WordSurprisal]":
            nonlocal num_words
            words = measures.measure_surprisal(bundle, text, context=context)
            num_words += len(words)
            update(done, words=num_words)
            return words

        delimiter, columns, rows = _rows(
            files or ["-"],
            measure,
            column=column,
            format=format,
            by=by or [],
            spillover=spillover,
            prefix=prefix,
            language=language,
            tokenized=tokenized,
            errors=errors,
        )
        if json:
            for row in rows:
                print_json(row)
        else:
            _print_table(columns, rows, delimiter)


def _rows(
    files: Sequence[str],
    measure: "Measure",
    *,
    column: str,
    format: Literal["csv", "tsv"] | None,
    by: Sequence[str],
    spillover: int,
    prefix: str,
    language: str,
    tokenized: bool,
    errors: Literal["strict", "replace"],
) -> "tuple[str, list[str], Iterator[Row]]":
    """Return the delimiter of the output, its columns, and its rows."""
    from elmore.errors import ConfigError
    from elmore.lm.surprisal_table import added_columns, table_rows, word_rows
    from elmore.text import tokenizers, written_words
    from elmore.text.csv_table import is_table, read_table
    from elmore.text.files import Lines, expand_patterns

    tokenizer = tokenizers.whitespace if tokenized else tokenizers.penn
    split = partial(written_words.split_text, tokenizer=tokenizer, language=language)
    join = partial(written_words.join_words, tokenizer=tokenizer, language=language)
    names = expand_patterns(files)
    tables = [name for name in names if format or is_table(name)]
    if tables:
        if len(names) > 1:
            raise ConfigError(f"{tables[0]}: a table must be the only file, found {len(names)}")
        table = read_table(tables[0], format=format, errors=errors)
        more = {"by": by, "spillover": spillover, "prefix": prefix}
        added = [prefix + name for name in added_columns(spillover, skip_word=bool(by))]
        rows = table_rows(table, column, measure, split=split, join=join, **more)
        return table.delimiter, table.columns + added, rows
    if by:
        raise ConfigError(
            f"--by needs a .csv or .tsv table, found {names[0]}; if it is one, pass --format csv "
            "or --format tsv"
        )

    columns = [prefix + name for name in ("line", *added_columns(spillover))]

    def text_rows() -> "Iterator[Row]":
        lines = Lines(names, errors=errors, column=column)
        for number, line in enumerate(lines):
            text = split(line) if isinstance(line, str) else join(line)
            words = measure(text, lines.fraction_after(number + 1))
            for row in word_rows(words, spillover=spillover):
                yield {prefix + name: value for name, value in ({"line": number} | row).items()}

    return ",", columns, text_rows()


def _print_table(columns: Sequence[str], rows: "Iterator[Row]", delimiter: str) -> None:
    first = next(rows, None)  # an error comes before the header
    # As it is read: .tsv without quotes
    quotes: dict[str, Any] = (
        {"quoting": csv.QUOTE_NONE, "quotechar": None} if delimiter == "\t" else {}
    )
    writer = csv.writer(sys.stdout, delimiter=delimiter, lineterminator="\n", **quotes)
    writer.writerow(columns)
    for row in chain([] if first is None else [first], rows):
        writer.writerow(map(_round, row.values()))


def _round(value: Any) -> Any:  # noqa: ANN401 -- whatever a cell has
    return round(value, 4) if isinstance(value, float) else value
