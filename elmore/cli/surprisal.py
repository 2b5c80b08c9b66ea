"""elmore surprisal MODEL TEXT: a table of the surprisal of each word, for reading research."""

import csv
import json as json_module
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elmore.cli.options import DefaultFiles, Device, Errors, Json, ModelArgument, Tokenized

if TYPE_CHECKING:
    from elmore.lm.surprisal import WordSurprisal
    from elmore.lm.surprisal_table import Measure, Row
    from elmore.text.written_words import WrittenText


def surprisal(
    model: ModelArgument,
    files: DefaultFiles = None,
    context: Annotated[
        str,
        typer.Option(help="What is read beside a word: sentence, text, or a number of words."),
    ] = "sentence",
    column: Annotated[
        str, typer.Option(help="Column of texts or words in .csv, .tsv, .jsonl and .parquet input.")
    ] = "text",
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
    from elmore.lm import scoring
    from elmore.lm import surprisal as measures
    from elmore.weights import pretrained

    measures.check_context(context)
    bundle = pretrained.load(model)
    _, softmax = scoring.require_softmax(bundle)
    for module in (bundle.model, softmax.softmax):
        networks.move(module, device)
    num_words = 0
    with show_progress("measuring") as update:

        def measure(text: "WrittenText") -> "list[WordSurprisal]":
            nonlocal num_words
            words = measures.measure_surprisal(bundle, text, context=context)
            num_words += len(words)
            update(None, words=num_words)
            return words

        delimiter, rows = _rows(
            files or ["-"],
            measure,
            column=column,
            by=by or [],
            spillover=spillover,
            prefix=prefix,
            language=language,
            tokenized=tokenized,
            errors=errors,
        )
        _print_rows(rows, delimiter, as_json=json)


def _rows(
    files: Sequence[str],
    measure: "Measure",
    *,
    column: str,
    by: Sequence[str],
    spillover: int,
    prefix: str,
    language: str,
    tokenized: bool,
    errors: Literal["strict", "replace"],
) -> "tuple[str, Iterator[Row]]":
    """Return the delimiter of the output, and its rows."""
    from elmore.errors import ConfigError
    from elmore.lm.surprisal_table import table_rows, word_rows
    from elmore.text import tokenizers, written_words
    from elmore.text.csv_table import is_table, read_table
    from elmore.text.files import Lines, expand_patterns

    tokenizer = tokenizers.whitespace if tokenized else tokenizers.penn
    split = partial(written_words.split_text, tokenizer=tokenizer, language=language)
    join = partial(written_words.join_words, tokenizer=tokenizer, language=language)
    names = expand_patterns(files)
    tables = [name for name in names if is_table(name)]
    if tables:
        if len(names) > 1:
            raise ConfigError(f"{tables[0]}: a table must be the only file, found {len(names)}")
        table = read_table(tables[0], errors=errors)
        more = {"by": by, "spillover": spillover, "prefix": prefix}
        return table.delimiter, table_rows(table, column, measure, split=split, join=join, **more)
    if by:
        raise ConfigError(f"--by needs a .csv or .tsv table, found {names[0]}")

    def rows() -> "Iterator[Row]":
        for number, line in enumerate(Lines(names, errors=errors, column=column)):
            text = split(line) if isinstance(line, str) else join(line)
            for row in word_rows(measure(text), spillover=spillover):
                yield {prefix + name: value for name, value in ({"line": number} | row).items()}

    return ",", rows()


def _print_rows(rows: "Iterator[Row]", delimiter: str, *, as_json: bool) -> None:
    writer = csv.writer(sys.stdout, delimiter=delimiter, lineterminator="\n")
    for number, row in enumerate(rows):
        cells = {name: _round(value) for name, value in row.items()}
        if as_json:
            print(json_module.dumps(cells, ensure_ascii=False))
            continue
        if number == 0:
            writer.writerow(cells)
        writer.writerow(cells.values())


def _round(value: Any) -> Any:  # noqa: ANN401 -- whatever a cell has
    return round(value, 4) if isinstance(value, float) else value
