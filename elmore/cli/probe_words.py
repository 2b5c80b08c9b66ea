"""elmore probe context, elmore probe uses: how the vectors of a word vary between sentences."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmore.cli.options import Column, Device, Errors, Files, Json, ModelOption, Seed, Tokenized
from elmore.cli.tables import print_json, print_table

if TYPE_CHECKING:
    from elmore.embed.embedder import Embedder
    from elmore.probe.occurrence_map import OccurrenceMap
    from elmore.probe.reporting.page import Cell

Split = Annotated[bool, typer.Option("--split", help="Split lines into sentences.")]


def context(
    corpus: Files,
    model: ModelOption = None,
    sentences: Annotated[int, typer.Option(min=1, help="Number of sentences to sample.")] = 2000,
    min_uses: Annotated[
        int, typer.Option(min=2, help="Measure word forms with this many occurrences or more.")
    ] = 5,
    max_words: Annotated[
        int, typer.Option(min=1, help="Measure at most this many word forms.")
    ] = 5000,
    tokenized: Tokenized = False,
    split: Split = False,
    column: Column = "text",
    errors: Errors = "strict",
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Measure how much the vector of a word depends on its context, layer by layer.

    The self-similarity of a word form is the mean cosine of its occurrences. The mean cosine of
    random occurrences of different words is subtracted as a baseline (Ethayarajh, 2019).
    """
    from elmore.cli.progress import show_progress
    from elmore.probe import context, sample
    from elmore.text.files import Lines

    lines = Lines(corpus, column=column, errors=errors)
    elmo = load_model(model, device)
    with show_progress("embedding") as update:
        results = context.measure_contextuality(
            elmo,
            sample.tokenize_lines(lines, tokenized=tokenized, split=split),
            num_sentences=sentences,
            max_words=max_words,
            min_uses=min_uses,
            seed=seed,
            progress=lambda done, tokens: update(done, tokens=tokens),
        )
    if json:
        print_json(asdict(results), indent=2)
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
            for layer in results.layers
        ],
        as_json=False,
    )


def uses(
    word: Annotated[str, typer.Argument(help="Token of plain text, or lemma of annotated text.")],
    corpus: Annotated[
        list[str],
        typer.Argument(help="Text, also compressed, or sense-annotated: X.data.xml or its folder."),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Draw the map: .svg or .png.")
    ] = None,
    model: ModelOption = None,
    layers: Annotated[
        str, typer.Option(help="Layer: average, top, cloze, whitened, or a number.")
    ] = "top",
    method: Annotated[
        Literal["pca", "tsne"], typer.Option(help="Projection onto the plane.")
    ] = "pca",
    clusters: Annotated[
        int | None,
        typer.Option(min=1, help="Number of clusters.", show_default="best silhouette of 2 to 8"),
    ] = None,
    max_uses: Annotated[
        int, typer.Option(min=2, help="Sample at most this many occurrences.")
    ] = 500,
    tokenized: Tokenized = False,
    split: Split = False,
    column: Column = "text",
    errors: Errors = "strict",
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Cluster the occurrences of a word, and draw them by sense where senses are annotated."""
    from elmore.cli.progress import show_progress
    from elmore.embed.outputs import check_layers, parse_layers
    from elmore.probe import occurrence_map, occurrences, plots
    from elmore.probe.drawing import files

    if out is not None:
        files.check_path(out)
    chosen = parse_layers(layers)
    occurrence_list, total = occurrences.find_occurrences(
        word,
        corpus,
        max_uses=max_uses,
        seed=seed,
        tokenized=tokenized,
        split=split,
        column=column,
        errors=errors,
    )
    elmo = load_model(model, device)
    check_layers(chosen, elmo.num_layers)
    with show_progress("embedding") as update:
        vectors = occurrence_map.embed_occurrences(
            elmo, occurrence_list, chosen, lambda done, count: update(done, uses=count)
        )
    drawn = occurrence_map.map_occurrences(
        word,
        occurrence_list,
        vectors,
        layers=str(elmo.num_layers - 1) if layers == "top" else layers,
        method=method,
        num_clusters=clusters,
        num_found=total,
        seed=seed,
    )
    if json:
        print_json(asdict(drawn))
    else:
        _print_clusters(drawn)
    if out is not None:
        files.save(plots.occurrence_map(drawn), out)


def _print_clusters(drawn: "OccurrenceMap") -> None:
    from elmore.probe.reporting import sections_probes

    def plain(cell: "Cell") -> str:
        return str(getattr(cell, "text", "" if cell is None else cell))

    rows = [
        {key: plain(cell) for key, cell in row.items()}
        for row in sections_probes.cluster_rows(drawn)
    ]
    print_table(rows, as_json=False)
    print(sections_probes.describe_clusters(drawn))


def load_model(
    model: str | None, device: str, precision: Literal["exact", "fast"] = "exact"
) -> "Embedder":
    """Load a model, or the bundled one, and show the progress of a download."""
    from elmore.cli.progress import show_download
    from elmore.embed.loading import load

    with show_download() as progress:
        paths = [model] if model else []
        return load(*paths, device=device, precision=precision, progress=progress)
