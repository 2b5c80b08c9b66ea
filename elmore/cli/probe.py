"""elmore probe pos, wsd, context, uses, suite: what each layer of a model encodes."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from elmore.cli.options import Device, Json, ModelOption, Seed
from elmore.cli.probe_suite import suite
from elmore.cli.probe_words import context, load_model, uses
from elmore.cli.tables import print_json, print_table

Vectors = Annotated[
    str | None,
    typer.Option(help="Word vectors to probe instead of a model: glove:FILE, with .txt or .npy."),
]

probe = typer.Typer(
    name="probe",
    help="Measure what each layer of a model encodes.",
    add_completion=False,
    no_args_is_help=True,
)
probe.command()(context)
probe.command()(uses)
probe.command()(suite)


@probe.command()
def pos(
    train: Annotated[Path, typer.Option(help="CoNLL-U file to train on, also .gz .xz .bz2 .zst.")],
    dev: Annotated[Path, typer.Option(help="CoNLL-U file to choose the best epoch by.")],
    test: Annotated[Path, typer.Option(help="CoNLL-U file to test on.")],
    model: ModelOption = None,
    vectors: Vectors = None,
    column: Annotated[Literal["xpos", "upos"], typer.Option(help="Column of the tags.")] = "xpos",
    layers: Annotated[
        str, typer.Option(help="Layers: all and their average, average, or a number.")
    ] = ("all"),
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Also train on random labels.")
    ] = True,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Predict part-of-speech tags from frozen vectors, with one linear classifier per layer.

    The control task gives every word type a random tag: a probe that learns those memorizes words.
    Selectivity is the accuracy on the true tags minus the accuracy on the random ones.
    """
    from elmore.cli.progress import show_progress
    from elmore.errors import ConfigError
    from elmore.probe import linear_probe
    from elmore.tasks.embedding import word_vectors
    from elmore.train.distributed import init_distributed

    file = _parse_vectors(vectors)
    if file and (model or layers != "all"):
        raise ConfigError("--vectors replaces the model: remove --model and --layers")
    data = linear_probe.read_splits(train, dev, test, column=column)
    with init_distributed(device) as (_, local_device):
        if file:
            features = linear_probe.word_vector_features(data, word_vectors.read_word_vectors(file))
        else:
            elmo = load_model(model, str(local_device))
            with show_progress("embedding") as update:
                features = linear_probe.layer_features(
                    data, elmo, layers, lambda done, tokens: update(done, tokens=tokens)
                )
        with show_progress("probing") as update:
            rows = linear_probe.probe_layers(
                data,
                features,
                control=control,
                seed=seed,
                device=local_device,
                progress=lambda done, updates: update(done, updates=updates),
            )
    table = [row.row() for row in rows]
    print_table(table if json else [_format_row(row) for row in table], as_json=json)


def _parse_vectors(vectors: str | None) -> str | None:
    """Return the file of --vectors."""
    from elmore.errors import ConfigError

    if vectors is None:
        return None
    kind, _, file = vectors.partition(":")
    if kind != "glove" or not file:
        raise ConfigError(f"--vectors {vectors!r}: expected glove:FILE")
    return file


def _format_row(row: dict) -> dict:
    return {
        key: f"{100 * value:.2f}" if isinstance(value, float) else value
        for key, value in row.items()
    }


@probe.command()
def wsd(
    train: Annotated[
        Path,
        typer.Option(
            help="Annotated X.data.xml or its folder, also compressed; its keys lie beside it."
        ),
    ],
    test: Annotated[
        list[Path], typer.Option(help="Annotated text to test on, like --train; may be repeated.")
    ],
    wordnet: Annotated[Path, typer.Option(help="Folder of WordNet 3.0, with index.sense in it.")],
    model: ModelOption = None,
    vectors: Vectors = None,
    held_out: Annotated[
        float, typer.Option(help="Fraction of the training documents that chooses the row.")
    ] = 0.1,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Disambiguate word senses by the nearest average vector of a sense's annotated instances.

    A lemma without annotated instances gets the first sense of WordNet; the columns called alone
    are without this fallback. The row marked chosen is the best on held-out training documents; the
    rows cloze and whitened are not the paper's and not chosen, and have a gain over the top layer.
    """
    from dataclasses import asdict

    from elmore.cli.progress import show_progress
    from elmore.errors import ConfigError
    from elmore.probe import senses
    from elmore.probe.sense_corpus import SenseCorpus
    from elmore.probe.wordnet import read_wordnet
    from elmore.tasks.embedding import word_vectors
    from elmore.train.distributed import init_distributed

    file = _parse_vectors(vectors)
    if file and model:
        raise ConfigError("--vectors replaces the model: remove --model")
    train_corpus, tests = SenseCorpus(train), [*map(SenseCorpus, test)]
    known = read_wordnet(wordnet)
    with init_distributed(device) as (_, local_device):
        source = (
            word_vectors.read_word_vectors(file) if file else load_model(model, str(local_device))
        )
        with show_progress("reading senses") as update:
            results = senses.probe_senses(
                source,
                train_corpus,
                tests,
                known,
                held_out=held_out,
                seed=seed,
                name="glove",
                progress=lambda done, words: update(done, words=words),
            )
    if json:
        print_json(asdict(results), indent=2)
    else:
        tables = {"held out": results.held_out} | results.tests
        rows = [
            _sense_row(text, layer, scores, chosen=layer == results.chosen)
            for text, table in tables.items()
            for layer, scores in table.items()
        ]
        print_table(rows, as_json=False)


def _sense_row(text: str, layer: str, scores: dict[str, float], *, chosen: bool) -> dict:
    columns = {"noun": "f1_noun", "verb": "f1_verb", "adj": "f1_adj", "adv": "f1_adv"} | {
        f"alone {name}": f"alone_{name}" for name in ("precision", "recall", "f1", "coverage")
    }
    return {
        "text": text,
        "layer": layer,
        "chosen": "*" if chosen else "",
        "f1": f"{100 * scores['f1']:.1f}",
        "95 %": f"{100 * scores['f1_low']:.1f}-{100 * scores['f1_high']:.1f}",
        "gain": _format_gain(scores),
    } | {
        column: f"{100 * scores[key]:.1f}" if key in scores else ""
        for column, key in columns.items()
    }


def _format_gain(scores: dict[str, float]) -> str:
    """Return the gain over the top layer with its paired interval, "" where there is none."""
    if "gain" not in scores:
        return ""
    gain, low, high = (100 * scores[key] for key in ("gain", "gain_low", "gain_high"))
    return f"{gain:+.1f} ({low:+.1f} to {high:+.1f})"
