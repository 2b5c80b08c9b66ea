"""elmore export [MODEL] OUT.onnx: a model for runtimes without torch."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from elmore.cli.options import InitialState, ModelsOption, Overwrite, Vocabulary


def export(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] OUT", help="The model, and the file to write, ending in .onnx."
        ),
    ],
    model: ModelsOption = None,
    storage: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(help="Number format of the weights in the file; computation is in float32."),
    ] = "float32",
    initial_state: InitialState = "zero",
    vocabulary: Vocabulary = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a model as an ONNX file, after comparing it with the original.

    The graph takes any number of sentences and tokens, and returns all layers.
    docs/integrations/onnx.md describes its inputs; examples/onnx_without_torch.py runs it.
    """
    from elmore.cli.progress import show_download
    from elmore.integrations import onnx
    from elmore.weights import catalogue, pretrained

    *named, last = arguments
    out, sources = Path(last), [*(model or []), *named] or [catalogue.BUNDLED]
    with show_download() as progress:
        bundle = pretrained.load(*sources, vocabulary=vocabulary, progress=progress)
    report = onnx.export(
        bundle, out, storage=storage, initial_state=initial_state, overwrite=overwrite
    )
    message = (
        f"{report.num_bytes / 1e6:.1f} MB; largest difference from torch {report.difference:.0e}"
    )
    if storage != "float32":
        message += (
            f"; {storage} changed numbers by at most {report.rounding:.0e}, "
            f"and every vector has a cosine of at least {report.cosine:.6f} with its original"
        )
    print(message, file=sys.stderr)
    print(out)
