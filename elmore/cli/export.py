"""elmore export [MODEL] OUT: a model for other runtimes, an ONNX file or a site for browsers."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from elmore.cli.options import InitialState, ModelsOption, Overwrite, Vocabulary
from elmore.errors import ConfigError

OnnxStorage = Literal["float32", "float16", "int8"]


def export(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] OUT",
            help="The model, and what to write: a file ending in .onnx, or the folder of a site.",
        ),
    ],
    model: ModelsOption = None,
    storage: Annotated[
        OnnxStorage,
        typer.Option(
            help="Number format of the weights in an ONNX file; computation is in float32."
        ),
    ] = "float32",
    initial_state: InitialState = "zero",
    vocabulary: Vocabulary = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a model for other runtimes: an ONNX file, or a site that runs in browsers.

    OUT.onnx is a graph that takes any number of sentences and tokens, and returns all layers; it is
    compared with the original. docs/integrations/onnx.md describes its inputs.

    Any other OUT is a folder with the page of `elmore serve`, where the model runs in the visitor's
    browser, without a server. docs/guides/browser.md describes it.
    """
    *named, last = arguments
    out, sources = Path(last), [*(model or []), *named]
    if out.suffix == ".onnx":
        _export_onnx(out, sources, storage, initial_state, vocabulary, overwrite=overwrite)
    else:
        _refuse_onnx_options(storage, initial_state)
        _export_site(out, sources, vocabulary, overwrite=overwrite)
    print(out)


def _export_site(
    out: Path, sources: list[str], vocabulary: Path | None, *, overwrite: bool
) -> None:
    from elmore.browser.site import write_site
    from elmore.cli.progress import show_download

    with show_download() as progress:
        site = write_site(
            out, *sources, vocabulary=vocabulary, overwrite=overwrite, progress=progress
        )
    message = f"{site.num_bytes / 1e6:.1f} MB, of which the model {site.model_bytes / 1e6:.1f} MB"
    print(f"{message}; to see it: python -m http.server -d {out}", file=sys.stderr)


def _refuse_onnx_options(storage: str, initial_state: str) -> None:
    """Refuse options that change nothing in a site."""
    for name, value, default in (
        ("--storage", storage, "float32"),
        ("--initial-state", initial_state, "zero"),
    ):
        if value != default:
            raise ConfigError(
                f"{name} {value}: only an ONNX file has this option; name a file ending in .onnx, "
                "or leave it out"
            )


def _export_onnx(
    out: Path,
    sources: list[str],
    storage: OnnxStorage,
    initial_state: Literal["zero", "warm"],
    vocabulary: Path | None,
    *,
    overwrite: bool,
) -> None:
    from elmore.cli.progress import show_download
    from elmore.integrations import onnx
    from elmore.weights import pretrained

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
