"""Build one HTML page from runs and results."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elmore import atomic
from elmore.errors import ConfigError
from elmore.probe.drawing import files
from elmore.probe.drawing.canvas import Canvas
from elmore.probe.reporting import page, sections_probes, sections_training
from elmore.probe.reporting.inputs import ReportInputs, load_inputs

_SECTIONS = (
    sections_training.language_models,
    sections_training.tasks,
    sections_training.layer_weights,
    sections_training.sample_efficiency,
    sections_probes.probes,
    sections_probes.context,
    sections_probes.maps,
    sections_probes.neighbors,
    sections_probes.surprise,
)


@dataclass(frozen=True)
class Report:
    """The page, and its figures by file name."""

    html: str
    figures: dict[str, Canvas]


def build(sources: Sequence[Path], title: str = "What was learned") -> Report:
    """Load run folders and --json output, and build the page."""
    inputs = load_inputs(sources)
    parts = [part for make in _SECTIONS if (part := make(inputs)) is not None]
    figures: dict[str, Canvas] = {}
    for part in parts:
        for name, figure in part.figures.items():
            figures[_unique(re.sub(r"[^\w.-]+", "_", name), figures)] = figure
    summary = page.Table("Runs and their best scores", sections_training.summary(inputs))
    return Report(page.render(title, summary, _describe_others(inputs), parts), figures)


def _describe_others(inputs: ReportInputs) -> str:
    """Return a line on the inputs that are not runs."""
    counts = {
        "probe": len(inputs.parts_of_speech) + len(inputs.senses),
        "measurement of context": len(inputs.contexts),
        "map": len(inputs.maps),
        "query": sum(map(len, inputs.neighbors.values())),
        "scored text": sum(map(len, inputs.texts.values())),
    }
    plural = {"query": "queries", "measurement of context": "measurements of context"}
    others = [
        f"{count} {what if count == 1 else plural.get(what, what + 's')}"
        for what, count in counts.items()
        if count
    ]
    if not others:
        return ""
    has_runs = inputs.runs or inputs.sweeps or inputs.perplexities
    return f"{'Also: ' if has_runs else ''}{', '.join(others)}."


def _unique(name: str, taken: dict[str, Canvas]) -> str:
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name}-{number}", number + 1
    return unique


def check_paths(out: Path, plots: Path | None, sources: Sequence[Path]) -> None:
    """Raise an error for outputs that cannot be written, before anything is read."""
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ConfigError(f"{out}: expected a file name in an existing folder")
    if out.suffix not in (".html", ".htm"):
        raise ConfigError(f"{out}: expected a file name that ends in .html")
    for source in sources:
        if out.exists() and source.exists() and out.samefile(source):
            raise ConfigError(f"{out} is also an input; pass another name")
    if plots is not None and plots.exists() and not plots.is_dir():
        raise ConfigError(f"{plots}: expected a folder for the figures, found a file")
    if plots is not None:
        files.check_png()


def write(report: Report, out: Path, plots: Path | None = None) -> None:
    """Write the page, replacing an earlier one, and its figures as .svg and .png."""
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for name, figure in report.figures.items():
            for ending in (".svg", ".png"):
                files.save(figure, plots / f"{name}{ending}")
    atomic.write(out, report.html.encode())
