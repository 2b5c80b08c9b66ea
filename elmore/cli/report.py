"""elmore report RUN... -o report.html: one page to look at."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="run folders, and files that commands printed with --json"),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="the page, .html")],
    plots: Annotated[
        Path | None, typer.Option(help="a folder for the figures, as .svg and .png")
    ] = None,
    title: Annotated[str, typer.Option(help="of the page")] = "What was learned",
) -> None:
    """Show curves, perplexities, layer weights, probes, maps, neighbours and surprise on one page.

    RUN is a folder of pretrain, finetune or task train (also with --num-seeds and
    --train-fractions), or the --json of probe pos, probe wsd, probe context, probe uses, neighbors,
    score or evaluate. The page needs no network, and no other file.
    """
    from elmore.probe import report as reports

    reports.check(out, plots, runs)
    reports.write(reports.build(runs, title), out, plots)
    print(out)
