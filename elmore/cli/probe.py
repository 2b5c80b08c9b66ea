"""elmore probe pos, wsd, context, uses: what the layers of a model know."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from elmore.cli.seeing import context, uses

Model = Annotated[
    str | None,
    typer.Option(help="a name, a folder, a zip …", show_default="the bundled English model"),
]
Vectors = Annotated[
    str | None,
    typer.Option(help="glove:FILE, word vectors to probe instead of a model; .txt or .npy"),
]

probe = typer.Typer(
    name="probe",
    help="Ask what each layer of a model knows.",
    add_completion=False,
    no_args_is_help=True,
)
probe.command()(context)
probe.command()(uses)


@probe.command()
def pos(
    train: Annotated[Path, typer.Option(help="CoNLL-U to learn from, also .gz .xz .bz2 .zst")],
    dev: Annotated[Path, typer.Option(help="CoNLL-U to choose the best round by")],
    test: Annotated[Path, typer.Option(help="CoNLL-U that the accuracy is of")],
    model: Model = None,
    vectors: Vectors = None,
    column: Annotated[Literal["xpos", "upos"], typer.Option(help="which tags")] = "xpos",
    layers: Annotated[str, typer.Option(help="all and their average, average, or a number")] = (
        "all"
    ),
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="learn random labels too")
    ] = True,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    seed: Annotated[
        int, typer.Option(min=0, help="of the order of words and the random labels")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="the numbers as JSON")] = False,
) -> None:
    """Part-of-speech tags from frozen vectors, by one linear classifier per layer.

    The control gives every word a random tag: a probe that learns those too has learned words by
    heart. Selectivity is the accuracy on the true tags less that on the random ones.
    """
    from elmore.cli.progress import show_download, show_progress
    from elmore.cli.tables import print_table
    from elmore.embed.loading import load
    from elmore.errors import ConfigError
    from elmore.probe import linear
    from elmore.tasks.embedding import word_vectors
    from elmore.train.distributed import init_distributed

    file = _file_of(vectors)
    if file and (model or layers != "all"):
        raise ConfigError("--vectors are probed instead of a model: no --model and no --layers")
    data = linear.read(train, dev, test, column=column)
    with init_distributed(device) as (_, place):
        if file:
            features = linear.of_words(data, word_vectors.read_word_vectors(file))
        else:
            with show_download() as progress:
                elmo = load(*([model] if model else []), device=str(place), progress=progress)
            with show_progress("embedding") as update:
                features = linear.of_model(
                    data, elmo, layers, lambda done, tokens: update(done, tokens=tokens)
                )
        with show_progress("probing") as update:
            rows = linear.probe(
                data,
                features,
                control=control,
                seed=seed,
                device=place,
                progress=lambda done, updates: update(done, updates=updates),
            )
    found = [row.row() for row in rows]
    print_table(found if json else [_rounded(row) for row in found], as_json=json)


def _file_of(vectors: str | None) -> str | None:
    """Read what is said of word vectors."""
    from elmore.errors import ConfigError

    if vectors is None:
        return None
    kind, _, file = vectors.partition(":")
    if kind != "glove" or not file:
        raise ConfigError(f"--vectors {vectors!r}: expected glove:FILE")
    return file


def _rounded(row: dict) -> dict:
    return {
        key: f"{100 * value:.2f}" if isinstance(value, float) else value
        for key, value in row.items()
    }


@probe.command()
def wsd(
    train: Annotated[
        Path, typer.Option(help="X.data.xml or its folder, also packed; its keys lie beside it")
    ],
    test: Annotated[list[Path], typer.Option(help="likewise; may be given several times")],
    wordnet: Annotated[Path, typer.Option(help="folder of WordNet 3.0, with index.sense in it")],
    model: Model = None,
    vectors: Vectors = None,
    held_out: Annotated[
        float, typer.Option(help="share of the training documents that chooses the row")
    ] = 0.1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="of the documents and the intervals")] = 0,
    json: Annotated[bool, typer.Option("--json", help="the numbers as JSON")] = False,
) -> None:
    """Word senses from frozen vectors: the nearest average of a sense's annotated uses.

    A lemma without annotated uses gets the first sense of WordNet. The columns called alone are
    without this fallback. The row marked chosen is the best on held-out training documents.
    """
    import json as writer
    from dataclasses import asdict

    from elmore.cli.progress import show_download, show_progress
    from elmore.cli.tables import print_table
    from elmore.embed.loading import load
    from elmore.errors import ConfigError
    from elmore.probe import senses
    from elmore.probe import wordnet as index
    from elmore.probe.sense_data import SenseCorpus
    from elmore.tasks.embedding import word_vectors
    from elmore.train.distributed import init_distributed

    file = _file_of(vectors)
    if file and model:
        raise ConfigError("--vectors are probed instead of a model: no --model")
    learned, tests, known = SenseCorpus(train), [*map(SenseCorpus, test)], index.read(wordnet)
    with init_distributed(device) as (_, place):
        if file:
            source = word_vectors.read_word_vectors(file)
        else:
            with show_download() as progress:
                source = load(*([model] if model else []), device=str(place), progress=progress)
        with show_progress("reading senses") as update:
            found = senses.probe(
                source,
                learned,
                tests,
                known,
                held_out=held_out,
                seed=seed,
                name="glove",
                progress=lambda done, words: update(done, words=words),
            )
    if json:
        print(writer.dumps(asdict(found), indent=2))
    else:
        tables = {"held out": found.held_out} | found.tests
        rows = [
            _sense_row(text, layer, scores, chosen=layer == found.chosen)
            for text, table in tables.items()
            for layer, scores in table.items()
        ]
        print_table(rows, as_json=False)


def _sense_row(text: str, layer: str, scores: dict[str, float], *, chosen: bool) -> dict:
    columns = {"noun": "f1_noun", "verb": "f1_verb", "adj": "f1_adj", "adv": "f1_adv"} | {
        f"alone {what}": f"alone_{what}" for what in ("precision", "recall", "f1", "coverage")
    }
    return {
        "text": text,
        "layer": layer,
        "chosen": "*" if chosen else "",
        "f1": f"{100 * scores['f1']:.1f}",
        "95 %": f"{100 * scores['f1_low']:.1f}-{100 * scores['f1_high']:.1f}",
    } | {
        column: f"{100 * scores[key]:.1f}" if key in scores else ""
        for column, key in columns.items()
    }
