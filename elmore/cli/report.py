"""elmore report RUN... -o report.html: one HTML page of results."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Run folder, or file with the --json output of a command."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Page to write: .html.")],
    plots: Annotated[
        Path | None, typer.Option(help="Folder for the figures, as .svg and .png.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "What was learned",
) -> None:
    """Write one page with curves, perplexities, layer weights, probes, maps and neighbours.

    RUN is a folder of pretrain, finetune or task train (also with --num-seeds and
    --train-fractions), or the --json of probe pos, probe wsd, probe context, probe uses, neighbors,
    score or evaluate. The page is self-contained.
    """
    from elmore.probe import report as reports

    reports.check_paths(out, plots, runs)
    reports.write(reports.build(runs, title), out, plots)
    print(out)
