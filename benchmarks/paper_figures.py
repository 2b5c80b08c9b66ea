"""Draw the figures of benchmarks/paper.py: the same results give the same bytes of SVG.

`paper_table1.svg` shows the test scores of each task with and without ELMo, `paper_figure1.svg` the
score against the fraction of the training examples, `paper_figure2.svg` the layer weights. Missing
results are marked as missing. The figures are narrow enough for a phone; they use the colours of
Okabe and Ito, and different markers too.
"""

import io
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paper_cells import COLUMNS, FRACTION_TASKS, FRACTIONS, LAYERS, TASKS, Plan, means
from paper_page import gain

from elmore import atomic

LOOKS = {  # colour, marker
    "static": ("#D55E00", "s"),
    "untrained": ("#999999", "^"),
    "elmo": ("#0072B2", "o"),
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
Drawn = Callable[[Any, Plan], None]


def draw(plan: Plan, folder: Path) -> None:
    """Write every figure into a folder."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
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
            figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
            drawn(figure, plan)
            kept = io.BytesIO()
            figure.savefig(kept, format="svg", metadata={"Date": None, "Creator": None})
        atomic.write(folder / name, kept.getvalue())


def _spread(found: Sequence[float]) -> float:
    return statistics.stdev(found) if len(found) > 1 else 0.0


def _table1(figure: Any, plan: Plan) -> None:  # noqa: ANN401
    """Draw the test scores of each task of the paper's table, one marker for each column."""
    axes = figure.subplots()
    shown = [task for task in TASKS if "paper" in TASKS[task] and task in plan.of(TASKS)]
    for row, task in enumerate(shown):
        scores = {column: plan.values("test", plan.runs(task, column)) for column in LOOKS}
        for column, result in scores.items():
            if result:
                colour, marker = LOOKS[column]
                axes.errorbar(
                    statistics.mean(result), row, xerr=_spread(result), color=colour,
                    marker=marker, markersize=7, capsize=3, linestyle="none",
                    label=COLUMNS[column],
                )  # fmt: skip
        difference, there = gain(plan, task, "static"), TASKS[task]["paper"]
        told = "missing" if difference is None else f"{difference.mean:+.1f} points"
        told += f" (in the paper {there[1] - there[0]:+.1f})"
        over = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(2, row - 0.34, told, va="center", fontsize=9, color=MUTED, bbox=over)
    axes.set_yticks(range(len(shown)), [TASKS[task]["title"] for task in shown])
    axes.set_ylim(len(shown) - 0.5, -0.75)
    axes.set_xlim(0, 100)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("test score; more is better")
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        first = {label: handle for handle, label in zip(handles, labels, strict=True)}
        figure.legend(first.values(), first, loc="outside upper center", ncols=3, frameon=False)


def _figure1(figure: Any, plan: Plan) -> None:  # noqa: ANN401
    """One panel for each task, the share of the examples on a log axis."""
    panels = figure.subplots(2, sharex=True)
    for axes, task in zip(panels, FRACTION_TASKS, strict=True):
        for column in ("static", "elmo"):
            colour, marker = LOOKS[column]
            cells = {f: plan.fraction(task, column, f) for f in FRACTIONS}
            result = {f: plan.values("test", some) for f, some in cells.items()}
            there = {fraction: scores for fraction, scores in result.items() if scores}
            axes.errorbar(
                [100 * fraction for fraction in there],
                [statistics.mean(scores) for scores in there.values()],
                yerr=[_spread(scores) for scores in there.values()],
                color=colour, marker=marker, markersize=6, capsize=3, label=COLUMNS[column],
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(0.07, 140)
        axes.set_title(TASKS[task]["title"])
        axes.set_ylabel(f"test {TASKS[task]['score']} (%)")
        axes.minorticks_off()
    panels[-1].set_xticks(
        [100 * fraction for fraction in FRACTIONS], [f"{100 * f:g} %" for f in FRACTIONS]
    )
    panels[-1].set_xlabel("share of the training examples (log scale)")
    panels[0].legend(loc="lower right", frameon=False)


def _figure2(figure: Any, plan: Plan) -> None:  # noqa: ANN401
    """Draw a row per task: the layer weights at the input and at the output."""
    panels = figure.subplots(ncols=2, sharey=True)
    tasks = [task for task in TASKS if task in plan.of(TASKS)]
    result = {task: plan.mixes(task) for task in tasks}
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
    panels[0].set_yticks(range(len(tasks)), [TASKS[task]["title"] for task in tasks])
    figure.colorbar(
        image, ax=panels, orientation="horizontal", shrink=0.7, aspect=30,
        label="share of the layer in the mix (a row sums to 1)",
    )  # fmt: skip
