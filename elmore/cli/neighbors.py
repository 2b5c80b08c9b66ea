"""elmore neighbors [MODEL] CORPUS "the [play] was …": the nearest occurrences in a text."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmore.cli.interrupts import exit_on_interrupt
from elmore.cli.options import (
    Column,
    Device,
    Errors,
    Json,
    ModelOption,
    Precision,
    Tokenized,
    take_model,
)
from elmore.cli.tables import print_json, print_table

if TYPE_CHECKING:
    from elmore.probe.neighbors.index import Neighbor, OccurrenceIndex


def neighbors(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] CORPUS [QUERY]...",
            help="The model; text, .jsonl, .csv, .tsv or .parquet, also .gz .xz .bz2 .zst, or a "
            r'pattern, or an index folder; sentences such as "the \[play] was sold out".',
        ),
    ],
    model: ModelOption = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of results per query.")] = 10,
    word: Annotated[str | None, typer.Option(help="Search only occurrences of this word.")] = None,
    layer: Annotated[
        str | None,
        typer.Option(help="Layer to search: top, average, cloze, whitened, or a number."),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Layers to store when building: all, or a list such as 2,cloze,whitened."
        ),
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="Folder of the index.", show_default="in the cache")
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option(help="Text to add to the index; may be repeated.")
    ] = None,
    tokenized: Tokenized = False,
    column: Column = "text",
    errors: Errors = "strict",
    precision: Precision = "exact",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Find the word occurrences of a text that are nearest to a word in your sentence.

    The first call embeds the text and stores an index of every token; later calls only search.
    Without a query the index is built and its folder is printed.
    """
    from elmore.cli.probe_words import load_model
    from elmore.cli.progress import show_progress
    from elmore.errors import ConfigError
    from elmore.probe.neighbors.index import OccurrenceIndex
    from elmore.text import target_word
    from elmore.text.tokenizers import penn, whitespace

    source, (corpus, *queries) = take_model(arguments, model, needed=1, more=True)
    is_index = Path(corpus).is_dir()
    if is_index and (index or layers):
        raise ConfigError(f"{corpus} is an index already: --index and --layers need a text")
    if append and not (is_index or index):
        raise ConfigError("--append needs an index folder: name it with --index")
    tokenizer = whitespace if tokenized else penn
    targets = [target_word.parse_target(query, tokenizer) for query in queries]
    elmo = load_model(source, device, precision)
    if layers and layer:
        _check_layers(layer, layers, elmo.num_layers)
    options: dict[str, Any] = {"tokenized": tokenized, "column": column, "errors": errors}
    with exit_on_interrupt("run the same command to resume"), show_progress("reading") as update:
        options["progress"] = lambda done, lines, words: update(done, sentences=lines, uses=words)
        if is_index:
            opened_index = OccurrenceIndex.open(corpus, elmo)
        else:
            stored = layers or layer
            names = stored.split(",") if stored else None
            opened_index = OccurrenceIndex.build(index, elmo, [corpus], layers=names, **options)
        if append:
            opened_index.append(append, **options)
    if not targets:
        print(opened_index.folder)
        return
    if word is None:
        _warn_absent([tokens[position] for tokens, position in targets], opened_index)
    results = [opened_index.search(*target, k, word=word, layer=layer) for target in targets]
    _print(queries, results, as_json=json)
    _warn_few(queries, results, k)


def _warn_absent(words: list[str], index: "OccurrenceIndex") -> None:
    for word in words:
        if word not in index:
            print(f"{word!r} does not occur in the text; results are other words", file=sys.stderr)


def _warn_few(queries: list[str], results: "list[list[Neighbor]]", k: int) -> None:
    for query, result in zip(queries, results, strict=True):
        if len(result) < k:
            print(f"{query}: only {len(result)} of {k} neighbours exist", file=sys.stderr)


def _check_layers(layer: str, layers: str, num_layers: int) -> None:
    """Check that the layer to search will be stored, before a text is embedded for hours."""
    from elmore.errors import ConfigError
    from elmore.probe.neighbors.storage import resolve_layers

    searched, stored = (
        {*resolve_layers(names.split(","), num_layers)} for names in (layer, layers)
    )
    if not searched <= stored:
        raise ConfigError(f"--layer {layer}: --layers must include the layer to search")


def _print(queries: list[str], results: "list[list[Neighbor]]", *, as_json: bool) -> None:
    """Print a table for each query, under its query if there are several."""
    from elmore.text.target_word import format_target

    if as_json:
        pairs = zip(queries, results, strict=True)
        output = [
            {"query": query, "neighbors": [one._asdict() for one in result]}
            for query, result in pairs
        ]
        print_json(output, indent=2)
        return
    for number, (query, result) in enumerate(zip(queries, results, strict=True)):
        if len(queries) > 1:
            print(f"{chr(10) if number else ''}{query}")
        rows = [
            {
                "similarity": f"{one.similarity:.3f}",
                "line": one.line,
                "use": format_target(one.tokens, one.position),
            }
            for one in result
        ]
        if rows:
            print_table(rows, as_json=False)
