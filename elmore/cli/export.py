"""elmore export MODEL OUT.onnx: a model for runtimes without torch."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def export(
    model: Annotated[
        list[str], typer.Argument(help="a name, a folder, a zip, or options.json and weights.hdf5")
    ],
    out: Annotated[Path, typer.Argument(help="the file to write, ending in .onnx")],
    storage: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(help="of the weights; they are float32 again in memory"),
    ] = "float32",
    initial_state: Annotated[Literal["zero", "warm"], typer.Option(help="to start from")] = "zero",
    vocabulary: Annotated[
        Path | None, typer.Option(help="word list of a foreign model that reads words")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace OUT")] = False,
) -> None:
    """Write a model as ONNX, checked against the original before it is written.

    Sentences and tokens may be any number; all layers come out. docs/integrations/onnx.md says
    what goes in, examples/onnx_without_torch.py does it.
    """
    from elmore.cli.progress import show_download
    from elmore.integrations import onnx
    from elmore.weights import pretrained

    with show_download() as progress:
        bundle = pretrained.load(*model, vocabulary=vocabulary, progress=progress)
    report = onnx.export(
        bundle, out, storage=storage, initial_state=initial_state, overwrite=overwrite
    )
    said = f"{report.num_bytes / 1e6:.1f} MB; onnxruntime equals torch to {report.difference:.0e}"
    if storage != "float32":
        said += (
            f"; {storage} moved a number by at most {report.rounding:.0e}, "
            f"and no vector below a cosine of {report.cosine:.6f}"
        )
    print(said, file=sys.stderr)
    print(out)
