"""Draw the figures of benchmarks/paper.py: the same results give the same bytes of SVG.

`paper_table1.svg` shows the errors with GloVe and with GloVe and ELMo, `paper_figure1.svg` the
score against the fraction of the training examples, `paper_figure2.svg` the layer weights. Missing
results are marked as missing. The figures are narrow enough for a phone; they use the colours of
Okabe and Ito, and different markers too.
"""

import io
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paper_found import (
    FRACTIONS,
    LAYERS,
    NAMES,
    Chosen,
    fewer,
    means,
    mixes,
    part,
    seeds,
    values,
)

from elmore import atomic

LOOKS = {  # colour, marker
    "glove": ("#D55E00", "s"),
    "glove+elmo": ("#0072B2", "o"),
}
INK, MUTED, GRID, BLANK = "#1b1f24", "#59636e", "#dde1e6", "#eef0f2"
STYLE = {
    "svg.hashsalt": "elmore",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}
Drawn = Callable[[Any, Chosen, dict[str, Any]], None]


def draw(chosen: Chosen, tasks: dict[str, Any], folder: Path) -> None:
    """Write every figure into a folder."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SystemExit("the figures need matplotlib: pip install 'elmore[viz]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    every: dict[str, tuple[tuple[float, float], Drawn]] = {
        "paper_table1.svg": ((5.2, 4.3), _table1),
        "paper_figure1.svg": ((5.2, 5.8), _figure1),
        "paper_figure2.svg": ((5.2, 4.4), _figure2),
    }
    for name, (size, drawn) in every.items():
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=size, layout="constrained")
            figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
            drawn(figure, chosen, tasks)
            kept = io.BytesIO()
            figure.savefig(kept, format="svg", metadata={"Date": None, "Creator": None})
        atomic.write(folder / name, kept.getvalue())


def _spread(found: Sequence[float]) -> float:
    return statistics.stdev(found) if len(found) > 1 else 0.0


def _table1(figure: Any, chosen: Chosen, tasks: dict[str, Any]) -> None:  # noqa: ANN401
    """Two marks for each task of the paper: errors with GloVe, and with ELMo beside it."""
    axes = figure.subplots()
    shown = {task: known for task, known in tasks.items() if "paper" in known}
    for row, (task, known) in enumerate(shown.items()):
        scores = {v: values(chosen, "test", seeds(chosen, task, v)) for v in LOOKS}
        there = f"in the paper {fewer(*known['paper']):.0f} %"
        if not all(scores.values()):
            axes.text(2, row, f"missing ({there})", va="center", color=MUTED)
            continue
        before, after = (100 - statistics.mean(result) for result in scores.values())
        axes.plot([before, after], [row, row], color=MUTED, linewidth=1.5, zorder=1)
        for vectors, result in scores.items():
            colour, marker = LOOKS[vectors]
            axes.errorbar(
                100 - statistics.mean(result), row, xerr=_spread(result), color=colour,
                marker=marker,
                markersize=7, capsize=3, linestyle="none",
                label=NAMES[vectors] if row == 0 else None,
            )  # fmt: skip
        told = f"{fewer(100 - before, 100 - after):.0f} % fewer errors ({there})"
        over = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(2, row - 0.34, told, va="center", fontsize=9, color=MUTED, bbox=over)
    axes.set_yticks(range(len(shown)), [known["title"] for known in shown.values()])
    axes.set_ylim(len(shown) - 0.5, -0.75)
    axes.set_xlim(0, 100)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("errors on the test set (100 − score); less is better")
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper center", ncols=2, frameon=False)


def _figure1(figure: Any, chosen: Chosen, tasks: dict[str, Any]) -> None:  # noqa: ANN401
    """One panel for each task, the share of the examples on a log axis."""
    panels = figure.subplots(2, sharex=True)
    for axes, (task, unit) in zip(panels, {"snli": "accuracy", "srl": "F1"}.items(), strict=True):
        for vectors, (colour, marker) in LOOKS.items():
            result = {f: part(chosen, task, vectors, f) for f in FRACTIONS}
            there = {fraction: scores for fraction, scores in result.items() if scores}
            axes.errorbar(
                [100 * fraction for fraction in there],
                [statistics.mean(scores) for scores in there.values()],
                yerr=[_spread(scores) for scores in there.values()],
                color=colour, marker=marker, markersize=6, capsize=3, label=NAMES[vectors],
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(0.07, 140)
        axes.set_title(tasks[task]["title"])
        axes.set_ylabel(f"test {unit} (%)")
        axes.minorticks_off()
    panels[-1].set_xticks(
        [100 * fraction for fraction in FRACTIONS], [f"{100 * f:g} %" for f in FRACTIONS]
    )
    panels[-1].set_xlabel("share of the training examples (log scale)")
    panels[0].legend(loc="lower right", frameon=False)


def _figure2(figure: Any, chosen: Chosen, tasks: dict[str, Any]) -> None:  # noqa: ANN401
    """Draw a row per task: the layer weights at the input and at the output."""
    panels = figure.subplots(ncols=2, sharey=True)
    result = {task: mixes(chosen, task) for task in tasks}
    image = None
    for axes, place in zip(panels, ("input", "output"), strict=True):
        axes.set_facecolor(BLANK)
        weights = [
            means(result[task][place])[: len(LAYERS)] if place in result[task] else None
            for task in tasks
        ]
        empty = [float("nan")] * len(LAYERS)
        image = axes.imshow(
            [row or empty for row in weights], cmap="Blues", vmin=0, vmax=0.8, aspect="auto"
        )
        for y, (task, row) in enumerate(zip(tasks, weights, strict=True)):
            if row is None:
                told = "missing" if not result[task] else "not used"
                axes.text(1, y, told, ha="center", va="center", fontsize=9, color=MUTED)
            for x, share in enumerate(row or ()):
                colour = INK if share < 0.6 else "white"  # on what is dark
                axes.text(x, y, f"{share:.2f}", ha="center", va="center", color=colour)
        axes.set_xticks(range(len(LAYERS)), LAYERS, fontsize=9)
        axes.set_title(f"at the {place}")
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    panels[0].set_yticks(range(len(tasks)), [known["title"] for known in tasks.values()])
    figure.colorbar(
        image, ax=panels, orientation="horizontal", shrink=0.7, aspect=30,
        label="share of the layer in the mix (a row sums to 1)",
    )  # fmt: skip
