"""The figures of a change: the ranking of words, and a map of a word in both periods."""

import re
from collections.abc import Sequence
from pathlib import Path

from elmore import atomic
from elmore.probe.change.journal import WordChange
from elmore.probe.change.measures import Measure
from elmore.probe.change.study import ChangeStudy, RankBy
from elmore.probe.drawing import files
from elmore.probe.drawing.axes import axis_for, component_labels
from elmore.probe.drawing.canvas import Canvas
from elmore.probe.drawing.charts import Point, Series, dot_plot, scatter_plot
from elmore.probe.occurrence_map import format_occurrence

_MAX_WORDS = 40  # in one figure
_MAX_NAME = 50  # characters of a word in the name of its map, which may have 255 bytes
_MEASURES = {
    "apd": "average pairwise distance",
    "prt": "prototype distance",
    "jsd": "Jensen-Shannon distance",
}


def save_figures(study: ChangeStudy, out: Path, rank_by: RankBy) -> None:
    """Write ranking.svg, and maps/WORD.svg for each word, into a folder.

    Raises:
        DataError: A file cannot be written.
    """
    with atomic.explain_write_errors(out / "maps", "pass another folder"):
        (out / "maps").mkdir(parents=True, exist_ok=True)
    values = [(one.word, study.measure(one, rank_by)) for one in study]
    files.save(draw_ranking(values, _MEASURES[rank_by]), out / "ranking.svg")
    taken = set[str]()
    for one in study:
        name = re.sub(r"[^\w-]", "_", one.word)[:_MAX_NAME]
        while name.casefold() in taken:
            name += "_"
        taken.add(name.casefold())
        files.save(draw_map(one, study.layer), out / "maps" / f"{name}.svg")


def draw_map(change: WordChange, layer: str) -> Canvas:
    """Draw the uses of a word in two periods: colours are senses, shapes are periods."""
    series = []
    for cluster in range(len(change.senses)):
        for shape_index, period in enumerate(("old", "new")):
            points = [
                Point(use.x, use.y, f"{period}: {format_occurrence(use.occurrence)}")
                for use in change.uses
                if (use.cluster, use.period) == (cluster, period)
            ]
            name = f"sense {cluster + 1}, {period}: {len(points)}"
            series.append(Series(name, points, cluster, shape_index=shape_index))
    apd = change.scores.apd.value
    title = f"“{change.word}” in two periods, layer {layer}, APD {apd:.3f}"
    x_label, y_label = component_labels(change.variance)
    return scatter_plot(title, x_label, y_label, series)


def draw_ranking(values: Sequence[tuple[str, Measure]], name: str) -> Canvas:
    """Draw one of the measures of change, the most changed words first, with their intervals."""
    shown = values[:_MAX_WORDS]
    points = [
        Point(
            one.value,
            row,
            f"{word}: {one.value:.3f} ({one.low:.3f} to {one.high:.3f})",
            one.low,
            one.high,
        )
        for row, (word, one) in enumerate(shown)
    ]
    ends = [end for _, one in shown for end in (one.low, one.high)]
    words = "words" if len(shown) == len(values) else f"most changed of {len(values):,} words"
    title = f"Change of meaning: {len(shown)} {words}"
    x_axis = axis_for(ends, f"{name}, with its 95 % interval")
    return dot_plot(title, [word for word, _ in shown], x_axis, [Series(name, points, 0)], step=20)
