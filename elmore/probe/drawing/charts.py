"""Four kinds of charts: line chart, dot plot, scatter plot, heat map.

All are 440 pixels wide: two fit side by side on a desktop, and text is readable on a phone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elmore.probe.drawing.axes import (
    SMALL,
    Axis,
    PlotArea,
    axis_for,
    draw_x_ticks,
    text_width,
    truncate_text,
)
from elmore.probe.drawing.canvas import (
    SERIES,
    SHAPES,
    Canvas,
    Marker,
    Polyline,
    Rect,
    Text,
)

WIDTH = 440.0
_TOP = 34.0  # below the title
_LEFT, _RIGHT = 62.0, 14.0
_BELOW = 44.0  # ticks and label of the x axis
_LEGEND_LINE = 18.0


class Point(NamedTuple):
    """A data point, its tooltip, and an optional interval."""

    x: float
    y: float
    tooltip: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points that belong together."""

    name: str
    points: Sequence[Point]
    style_index: int = 0
    """Selects colour and shape; from the ninth on they repeat, dashed. Negative: grey."""
    markers: bool = True
    in_legend: bool = True
    """Whether the legend lists it."""
    shape_index: int | None = None
    """Selects the shape alone, so that series share a colour."""

    @property
    def role(self) -> str:
        """Colour role."""
        return SERIES[self.style_index % len(SERIES)] if self.style_index >= 0 else "other"

    @property
    def shape(self) -> str:
        """Marker shape."""
        if self.shape_index is not None:
            return SHAPES[self.shape_index % len(SHAPES)]
        return SHAPES[self.style_index % len(SHAPES)] if self.style_index >= 0 else "circle"

    @property
    def dashes(self) -> str:
        """Dash pattern of the line."""
        return "" if self.style_index < len(SERIES) else "6 4"


def line_chart(
    title: str,
    x_axis: Axis,
    y_axis: Axis,
    series: Sequence[Series],
    *,
    height: float = 230.0,
) -> Canvas:
    """Draw lines through points."""
    area = PlotArea(_LEFT, _TOP, WIDTH - _LEFT - _RIGHT, height, x_axis, y_axis)
    canvas = _titled_canvas(title, _TOP + height + _BELOW, series)
    area.draw(canvas)
    for one in series:
        positions = [(area.x(point.x), area.y(point.y)) for point in one.points]
        if len(positions) > 1:
            canvas.add(Polyline(positions, one.role, 1.8, one.dashes, one.name))
        for point, (x, y) in zip(one.points, positions, strict=True):
            if point.low is not None and point.high is not None:
                ends = [(x, area.y(point.low)), (x, area.y(point.high))]
                canvas.add(Polyline(ends, one.role, 1.4))
            if one.markers:
                canvas.add(Marker(x, y, one.role, one.shape, 3.5, point.tooltip, one.name))
    return canvas


def dot_plot(
    title: str,
    names: Sequence[str],
    x_axis: Axis,
    series: Sequence[Series],
    *,
    step: float = 24.0,
    bars: bool = False,
) -> Canvas:
    """Draw one row per name with markers, or bars, on it; the `y` of a point is its row."""
    label_width = min(150.0, max((text_width(name, 12) for name in names), default=0.0))
    left, height = label_width + 24, step * len(names)
    area = PlotArea(left, _TOP, WIDTH - left - 20, height, x_axis, Axis(len(names) - 0.5, -0.5, ""))
    canvas = _titled_canvas(title, _TOP + height + _BELOW, series)
    draw_x_ticks(canvas, area, x_axis.ticks())
    right, bottom = area.left + area.width, area.top + area.height
    for number, name in enumerate(names):
        y = area.y(number)
        canvas.add(Polyline([(left, y), (right, y)], "grid"))
        canvas.add(Text(left - 8, y + 4, truncate_text(name, label_width, 12), "ink", 12, "end"))
    middle = (left + right) / 2
    canvas.add(Text(middle, bottom + 34, x_axis.label, "muted", SMALL, "middle"))
    for one in series:
        for point in one.points:
            x, y = area.x(point.x), area.y(point.y)
            if point.low is not None and point.high is not None:
                ends = [(area.x(point.low), y), (area.x(point.high), y)]
                canvas.add(Polyline(ends, one.role, 1.4))
            if bars:
                bar = Rect(left, y - 6, x - left, 12, one.role, 0.7, point.tooltip, one.name)
                canvas.add(bar)
            else:
                canvas.add(Marker(x, y, one.role, one.shape, 4.5, point.tooltip, one.name))
    return canvas


def scatter_plot(
    title: str, x_label: str, y_label: str, series: Sequence[Series], *, height: float = 330.0
) -> Canvas:
    """Draw points without ticks, for coordinates that have no unit."""
    every = [point for one in series for point in one.points]
    area = PlotArea(
        30,
        _TOP,
        WIDTH - 30 - _RIGHT,
        height,
        axis_for([point.x for point in every], x_label),
        axis_for([point.y for point in every], y_label),
    )
    canvas = _titled_canvas(title, _TOP + height + 28, series)
    area.draw(canvas, ticks=False)
    for one in sorted(series, key=lambda one: one.style_index >= 0):  # grey points below the others
        for x, y, tooltip, _, _ in one.points:
            canvas.add(
                Marker(
                    area.x(x), area.y(y), one.role, one.shape, 4.2, tooltip, one.name, opacity=0.8
                )
            )
    return canvas


@dataclass(frozen=True)
class HeatmapRow:
    """A row of a heat map: values from 0 to 1."""

    name: str
    values: Sequence[float]


def heatmap(title: str, columns: Sequence[str], lines: Sequence[HeatmapRow], label: str) -> Canvas:
    """Draw a cell per value: the higher, the stronger its colour; the number is inside."""
    step = 30.0
    label_width = min(210.0, max((text_width(line.name, 12) for line in lines), default=0.0))
    left = label_width + 18
    width = (WIDTH - left - _RIGHT) / max(1, len(columns))
    canvas = Canvas(WIDTH, _TOP + 20 + step * len(lines) + 30, title)
    canvas.add(Text(12, 20, title, "ink", 14, bold=True))
    for number, column in enumerate(columns):
        middle = left + width * (number + 0.5)
        canvas.add(Text(middle, _TOP + 12, column, "muted", SMALL, "middle"))
    for row, line in enumerate(lines):
        y = _TOP + 20 + step * row
        name = truncate_text(line.name, label_width, 12)
        canvas.add(Text(left - 8, y + step / 2 + 4, name, "ink", 12, "end"))
        for number, value in enumerate(line.values):
            x = left + width * number
            opacity = 0.04 + 0.7 * min(1.0, max(0.0, value))
            tooltip = f"{line.name}, {columns[number]}: {value:.4f}"
            canvas.add(
                Rect(x + 1, y + 1, width - 2, step - 2, "c0", opacity, tooltip, line.name),
                Text(x + width / 2, y + step / 2 + 4, f"{value:.2f}", "ink", 12, "middle"),
            )
    canvas.add(Text(WIDTH - _RIGHT, canvas.height - 12, label, "muted", SMALL, "end"))
    return canvas


def _titled_canvas(title: str, height: float, series: Sequence[Series]) -> Canvas:
    """Return a canvas with a title above and a legend below."""
    entries = _layout_legend([one for one in series if one.in_legend])
    lines = 1 + max((line for _, line, _ in entries), default=-1)
    canvas = Canvas(WIDTH, height + _LEGEND_LINE * lines + (0 if lines else 2), title)
    canvas.add(Text(12, 20, truncate_text(title, WIDTH - 24, 14), "ink", 14, bold=True))
    for x, line, one in entries:
        y = height + _LEGEND_LINE * line + 8
        if one.dashes or not one.markers:  # dashes distinguish series of equal colour and shape
            canvas.add(Polyline([(x, y - 4), (x + 16, y - 4)], one.role, 1.8, one.dashes))
        if one.markers:
            canvas.add(Marker(x + 8, y - 4, one.role, one.shape, 4))
        name = truncate_text(one.name, WIDTH - 60, SMALL)
        canvas.add(Text(x + 22, y, name, "ink", SMALL))
    return canvas


def _layout_legend(series: Sequence[Series]) -> list[tuple[float, int, Series]]:
    """Return the x position and line of each entry; a single series needs no legend."""
    if len(series) < 2:
        return []
    entries, x, line = [], 30.0, 0
    for one in series:
        width = 22 + min(text_width(one.name, SMALL), WIDTH - 60) + 16
        if x > 30 and x + width > WIDTH - 8:
            x, line = 30.0, line + 1
        entries.append((x, line, one))
        x += width
    return entries
