"""elmore convert SOURCE... DEST: convert weights of other libraries to a model folder, or back."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from elmore.cli.options import MODEL, Overwrite, Vocabulary


def convert(
    source: Annotated[
        list[str],
        typer.Argument(help=f"{MODEL} Also ELMoForManyLangs, bilm-tf checkpoints and TF-Hub."),
    ],
    dest: Annotated[Path, typer.Argument(help="Folder to write.")],
    to: Annotated[
        Literal["elmore", "allennlp"],
        typer.Option(help="Write a model folder, or options.json and weights.hdf5 (allennlp)."),
    ] = "elmore",
    vocabulary: Vocabulary = None,
    storage: Annotated[
        Literal["float32", "float16", "int8", "int6"],
        typer.Option(
            help="Number format in a model folder; int8 has a scale per row, int6 one per matrix: "
            "as large, but smaller in a wheel."
        ),
    ] = "float32",
    overwrite: Overwrite = False,
) -> None:
    """Convert weights of AllenNLP, bilm-tf and others to a model folder, or back to AllenNLP."""
    from elmore.cli.progress import show_download
    from elmore.errors import ElmoreError
    from elmore.weights import folder, pretrained, warm
    from elmore.weights.convert import bilm_tf

    for path in (Path(name).resolve() for name in source if Path(name).exists()):
        if path.is_relative_to(dest.resolve()):
            raise ElmoreError(f"{dest} holds the source {path.name!r}; pass another destination")
    with show_download() as progress:
        bundle = pretrained.load(*source, vocabulary=vocabulary, progress=progress)
    if to == "allennlp":
        if storage != "float32":
            raise ElmoreError(
                f"--storage {storage} is for model folders; --to allennlp has float32"
            )
        bilm_tf.write_bilm_tf(bundle, dest, overwrite=overwrite)
    else:
        folder.save(warm.add_warm_state(bundle), dest, overwrite=overwrite, storage=storage)
    print(dest)
