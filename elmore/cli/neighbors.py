"""elmore neighbors MODEL CORPUS "the [play] was …": other uses nearest to this use."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from elmore.probe.neighbors import Neighbor


def neighbors(
    model: Annotated[str, typer.Argument(help="a name (english is the bundled one), a folder …")],
    corpus: Annotated[
        str,
        typer.Argument(
            help="text, .jsonl or .parquet, also packed; a pattern for several; or an index folder"
        ),
    ],
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY...", help='"the [play] was sold out"')
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="how many uses for each query")] = 10,
    word: Annotated[str | None, typer.Option(help="only uses of this word")] = None,
    layer: Annotated[str | None, typer.Option(help="to compare by: top, average, a number")] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="to keep when building: all, or some, as in 1,2,average; else one"),
    ] = None,
    index: Annotated[
        Path | None, typer.Option(help="folder to keep the index in; else the cache")
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option(help="text to add to the index; may be given several times")
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="text and queries are split on spaces already")
    ] = False,
    column: Annotated[str, typer.Option(help="of .jsonl and .parquet input")] = "text",
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="what to do with invalid UTF-8")
    ] = "strict",
    precision: Annotated[
        Literal["exact", "fast"], typer.Option(help="fast: bf16 or int8 where quicker")
    ] = "exact",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="the results as JSON")] = False,
) -> None:
    """Find the uses of words in a text that are nearest to a use in a sentence of yours.

    The first call reads the text and keeps an index of every word in it; later ones only look.
    Without a query the index is built, and its folder printed.
    """
    from elmore.cli.progress import show_download, show_progress
    from elmore.embed.loading import load
    from elmore.errors import ConfigError
    from elmore.probe.neighbors import UseIndex
    from elmore.text import target_word
    from elmore.text.tokenizers import penn, whitespace

    is_index = Path(corpus).is_dir()
    if is_index and (index or layers):
        raise ConfigError(f"{corpus} is an index already: --index and --layers are about text")
    if append and not (is_index or index):
        raise ConfigError("--append adds to an index that you keep: name it with --index")
    tokenizer = whitespace if tokenized else penn
    uses = [target_word.parse_target(query, tokenizer) for query in queries or []]
    with show_download() as progress:
        elmo = load(model, device=device, precision=precision, progress=progress)
    if layers and layer:
        _check_layers(layer, layers, elmo.num_layers)
    how: dict[str, Any] = {"tokenized": tokenized, "column": column, "errors": errors}
    try:
        with show_progress("reading") as update:
            how["progress"] = lambda done, lines, words: update(done, sentences=lines, uses=words)
            if is_index:
                found = UseIndex.open(corpus, elmo)
            else:
                kept = (layers or layer or "").split(",") if layers or layer else None
                found = UseIndex.build(index, elmo, [corpus], layers=kept, **how)
            if append:
                found.append(append, **how)
    except KeyboardInterrupt as error:
        print("elmore: stopped; the same command goes on", file=sys.stderr)
        raise typer.Exit(130) from error
    if not uses:
        print(found.folder)
        return
    if word is None:
        _tell_absent([tokens[at] for tokens, at in uses if tokens[at] not in found])
    results = [found.search(*use, k, word=word, layer=layer) for use in uses]
    _print(queries or [], results, as_json=json)
    _tell_few(queries or [], results, k)


def _tell_few(queries: list[str], results: "list[list[Neighbor]]", k: int) -> None:
    for query, result in zip(queries, results, strict=True):
        if len(result) < k:
            print(f"{query}: {len(result)} of {k} neighbours, there are no more", file=sys.stderr)


def _tell_absent(words: list[str]) -> None:
    for word in words:
        print(f"{word!r} is not in the text: these are uses of other words", file=sys.stderr)


def _check_layers(layer: str, layers: str, num_layers: int) -> None:
    """See that uses can be compared by a layer, before a text is read for days."""
    from elmore.errors import ConfigError
    from elmore.probe.use_store import kept_layers

    wanted, kept = ({*kept_layers(names.split(","), num_layers)} for names in (layer, layers))
    if not wanted <= kept:
        raise ConfigError(f"--layer {layer}: uses are compared by it, so --layers must name it")


def _print(queries: list[str], results: "list[list[Neighbor]]", *, as_json: bool) -> None:
    """Print a table for each query, under the query where there are several."""
    import json

    from elmore.cli.tables import print_table
    from elmore.text.target_word import format_target

    if as_json:
        pairs = zip(queries, results, strict=True)
        found = [
            {"query": query, "neighbors": [use._asdict() for use in uses]} for query, uses in pairs
        ]
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for number, (query, uses) in enumerate(zip(queries, results, strict=True)):
        if len(queries) > 1:
            print(f"{chr(10) if number else ''}{query}")
        rows = [
            {
                "similarity": f"{use.similarity:.3f}",
                "line": use.line,
                "use": format_target(use.tokens, use.position),
            }
            for use in uses
        ]
        if rows:
            print_table(rows, as_json=False)
