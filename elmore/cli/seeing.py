"""elmore probe context, elmore probe uses: one word in many sentences."""

import json as writer
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from elmore.embed.embedder import Embedder
    from elmore.probe.reporting.page import Cell
    from elmore.probe.use_map import UseMap

Model = Annotated[
    str | None,
    typer.Option(help="a name, a folder, a zip …", show_default="the bundled English model"),
]
Tokenized = Annotated[bool, typer.Option("--tokenized", help="the text is split on spaces already")]
Split = Annotated[bool, typer.Option("--split", help="cut its lines into sentences")]
Column = Annotated[str, typer.Option(help="of .jsonl and .parquet input")]
Errors = Annotated[Literal["strict", "replace"], typer.Option(help="what to do with invalid UTF-8")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
Json = Annotated[bool, typer.Option("--json", help="the numbers as JSON")]


def context(
    corpus: Annotated[
        list[str], typer.Argument(help="text, .jsonl or .parquet, also packed; - for stdin")
    ],
    model: Model = None,
    sentences: Annotated[int, typer.Option(min=1, help="drawn from the text")] = 2000,
    least: Annotated[int, typer.Option(min=2, help="uses that a word form must have")] = 5,
    words: Annotated[int, typer.Option(min=1, help="word forms, at most")] = 5000,
    tokenized: Tokenized = False,
    split: Split = False,
    column: Column = "text",
    errors: Errors = "strict",
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="of the draws")] = 0,
    json: Json = False,
) -> None:
    """How much a word's vector changes with its context, layer by layer.

    The self-similarity of a word form is the mean cosine of its uses; that of random uses of
    different words is subtracted, since vectors may all be alike (Ethayarajh, 2019).
    """
    from elmore.cli.progress import show_progress
    from elmore.cli.tables import print_table
    from elmore.probe import context as measures
    from elmore.probe import sample
    from elmore.text.files import Lines

    lines = Lines(corpus, column=column, errors=errors)
    elmo = _loaded(model, device)
    with show_progress("embedding") as update:
        found = measures.measure(
            elmo,
            sample.tokenized(lines, ready=tokenized, split=split),
            num_sentences=sentences,
            num_words=words,
            least=least,
            seed=seed,
            progress=lambda done, tokens: update(done, tokens=tokens),
        )
    if json:
        print(writer.dumps(asdict(found), indent=2, ensure_ascii=False))
        return
    print_table(
        [
            {
                "layer": layer.layer,
                "self-similarity": f"{layer.self_similarity:.3f}",
                "intra-sentence": f"{layer.intra_sentence:.3f}",
                "random": f"{layer.anisotropy:.3f}",
                "self - random": f"{layer.self_similarity_corrected:.3f}",
                "intra - random": f"{layer.intra_sentence_corrected:.3f}",
            }
            for layer in found.layers
        ],
        as_json=False,
    )


def uses(
    word: Annotated[str, typer.Argument(help="in plain text a token, in annotated text a lemma")],
    corpus: Annotated[
        list[str],
        typer.Argument(help="text, also packed, or sense-annotated: X.data.xml or its folder"),
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="a figure: .svg or .png")] = None,
    model: Model = None,
    layers: Annotated[str, typer.Option(help="average, top, or a number")] = "top",
    method: Annotated[Literal["pca", "tsne"], typer.Option(help="how to lay them out")] = "pca",
    clusters: Annotated[
        int | None, typer.Option(min=1, show_default="the best silhouette of 2 to 8")
    ] = None,
    most: Annotated[int, typer.Option(min=2, help="uses, drawn from all")] = 500,
    tokenized: Tokenized = False,
    split: Split = False,
    column: Column = "text",
    errors: Errors = "strict",
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="of the draw and the clusters")] = 0,
    json: Json = False,
) -> None:
    """Every use of a word in a text: clustered, and drawn by sense where senses are known."""
    from elmore.cli.progress import show_progress
    from elmore.embed.outputs import check_layers, parse_layers
    from elmore.probe import plots, use_map
    from elmore.probe import uses as found_uses
    from elmore.probe.drawing import files

    if out is not None:
        files.check(out)
    chosen = parse_layers(layers)
    found, total = found_uses.find(
        word,
        corpus,
        most=most,
        seed=seed,
        ready=tokenized,
        split=split,
        column=column,
        errors=errors,
    )
    elmo = _loaded(model, device)
    check_layers(chosen, elmo.num_layers)
    with show_progress("embedding") as update:
        vectors = use_map.vectors_of(
            elmo, found, chosen, lambda done, count: update(done, uses=count)
        )
    drawn = use_map.draw(
        word,
        found,
        vectors,
        layers=str(elmo.num_layers - 1) if layers == "top" else layers,
        method=method,
        num_clusters=clusters,
        num_found=total,
        seed=seed,
    )
    if out is not None:
        files.save(plots.use_map(drawn), out)
    if json:
        print(writer.dumps(asdict(drawn), ensure_ascii=False))
    else:
        _print_clusters(drawn)


def _print_clusters(drawn: "UseMap") -> None:
    from elmore.cli.tables import print_table
    from elmore.probe.reporting import sights

    def plain(cell: "Cell") -> str:
        return str(getattr(cell, "shown", "" if cell is None else cell))

    rows = [{key: plain(cell) for key, cell in row.items()} for row in sights.clusters(drawn)]
    print_table(rows, as_json=False)
    print(sights.agreement(drawn))


def _loaded(model: str | None, device: str) -> "Embedder":
    from elmore.cli.progress import show_download
    from elmore.embed.loading import load

    with show_download() as progress:
        return load(*([model] if model else []), device=device, progress=progress)
