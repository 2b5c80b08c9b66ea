"""Runs and results to one page to look at."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elmore import atomic
from elmore.errors import ConfigError
from elmore.probe.drawing import files
from elmore.probe.drawing.canvas import Canvas
from elmore.probe.reporting import page, sights, trainings
from elmore.probe.reporting.findings import Findings, gather

_SECTIONS = (
    trainings.language_models,
    trainings.tasks,
    trainings.layer_weights,
    trainings.sample_efficiency,
    sights.probes,
    sights.context,
    sights.maps,
    sights.neighbors,
    sights.surprise,
)


@dataclass(frozen=True)
class Report:
    """The page, and its figures by the names of their files."""

    html: str
    figures: dict[str, Canvas]


def build(sources: Sequence[Path], title: str = "What was learned") -> Report:
    """Read run folders and files of printed JSON, and write a page on all of them."""
    found = gather(sources)
    parts = [part for make in _SECTIONS if (part := make(found)) is not None]
    figures: dict[str, Canvas] = {}
    for part in parts:
        for name, figure in part.figures.items():
            figures[_free(re.sub(r"[^\w.-]+", "_", name), figures)] = figure
    return Report(page.whole(title, _lead(found), parts), figures)


def _lead(found: Findings) -> list[str]:
    rows = trainings.summary(found)
    counts = {
        "probe": len(found.parts_of_speech) + len(found.senses),
        "measure of context": len(found.contexts),
        "map": len(found.maps),
        "query": sum(map(len, found.neighbors.values())),
        "scored text": sum(map(len, found.texts.values())),
    }
    plural = {"query": "queries", "measure of context": "measures of context"}
    others = [
        f"{count} {what if count == 1 else plural.get(what, what + 's')}"
        for what, count in counts.items()
        if count
    ]
    lead = [page.table("What was trained, and the best it came to", rows)] if rows else []
    if others:
        lead.append(
            f'<p class="muted">{"Also: " if rows else ""}{page.text(", ".join(others))}.</p>'
        )
    return lead


def _free(name: str, taken: dict[str, Canvas]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found


def check(out: Path, plots: Path | None, sources: Sequence[Path]) -> None:
    """Refuse places that cannot be written to, before anything is read."""
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ConfigError(f"{out}: expected the name of a file in a folder that is there")
    if out.suffix not in (".html", ".htm"):
        raise ConfigError(f"{out}: a report is a page; expected a name that ends in .html")
    for source in sources:
        if out.exists() and source.exists() and out.samefile(source):
            raise ConfigError(f"{out} is an input too; pass another name")
    if plots is not None and plots.exists() and not plots.is_dir():
        raise ConfigError(f"{plots}: expected a folder for the figures, found a file")
    if plots is not None:
        files.check_png()


def write(report: Report, out: Path, plots: Path | None = None) -> None:
    """Write the page in place of an earlier one, and its figures as .svg and .png."""
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for name, figure in report.figures.items():
            for ending in (".svg", ".png"):
                files.save(figure, plots / f"{name}{ending}")
    atomic.write(out, report.html.encode())
