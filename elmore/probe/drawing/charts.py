"""Four kinds of charts: curves, rows of dots, a map of points, a heat map.

All are 440 wide: two fit side by side on a desk, and on a phone the text is still readable.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from elmore.probe.drawing.axes import SMALL, Axis, Plane, around, fitted, lower_ticks, text_width
from elmore.probe.drawing.canvas import (
    SERIES,
    SHAPES,
    Box,
    Canvas,
    Dot,
    Stroke,
    Words,
)

WIDTH = 440.0
_TOP = 34.0  # below the title
_LEFT, _RIGHT = 62.0, 14.0
_BELOW = 44.0  # numbers and the name of the lower axis
_ENTRY = 18.0  # the height of a line of the legend


class Point(NamedTuple):
    """A place on a curve or in a row, what is said of it, and how far it may be off."""

    x: float
    y: float
    note: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points that belong together."""

    name: str
    points: Sequence[Point]
    look: int = 0
    """Which colour and shape; from the ninth on they come again, dashed."""
    dots: bool = True
    listed: bool = True
    """Whether the legend names it."""

    @property
    def role(self) -> str:
        """Its colour; a negative look is the colour of all others."""
        return SERIES[self.look % len(SERIES)] if self.look >= 0 else "other"

    @property
    def shape(self) -> str:
        """Its mark."""
        return SHAPES[self.look % len(SHAPES)] if self.look >= 0 else "circle"

    @property
    def dashes(self) -> str:
        """Its line."""
        return "" if self.look < len(SERIES) else "6 4"


def curves(
    title: str,
    across: Axis,
    up: Axis,
    series: Sequence[Series],
    *,
    height: float = 230.0,
) -> Canvas:
    """Draw lines through points, left to right."""
    plane = Plane(_LEFT, _TOP, WIDTH - _LEFT - _RIGHT, height, across, up)
    canvas = _titled(title, _TOP + height + _BELOW, series)
    plane.draw(canvas)
    for one in series:
        places = [(plane.x(point.x), plane.y(point.y)) for point in one.points]
        if len(places) > 1:
            canvas.add(Stroke(places, one.role, 1.8, one.dashes, one.name))
        for point, (x, y) in zip(one.points, places, strict=True):
            if point.low is not None and point.high is not None:
                ends = [(x, plane.y(point.low)), (x, plane.y(point.high))]
                canvas.add(Stroke(ends, one.role, 1.4))
            if one.dots:
                canvas.add(Dot(x, y, one.role, one.shape, 3.5, point.note, one.name))
    return canvas


def rows(
    title: str, names: Sequence[str], across: Axis, series: Sequence[Series], *, step: float = 24.0
) -> Canvas:
    """Draw a row for each name, and dots on it: a point's `y` is the number of its row."""
    room = min(150.0, max((text_width(name, 12) for name in names), default=0.0))
    left, height = room + 24, step * len(names)
    plane = Plane(left, _TOP, WIDTH - left - 20, height, across, Axis(len(names) - 0.5, -0.5, ""))
    canvas = _titled(title, _TOP + height + _BELOW, series)
    lower_ticks(canvas, plane, across.ticks())
    right, bottom = plane.left + plane.width, plane.top + plane.height
    for number, name in enumerate(names):
        y = plane.y(number)
        canvas.add(Stroke([(left, y), (right, y)], "grid"))
        canvas.add(Words(left - 8, y + 4, fitted(name, room, 12), "ink", 12, "end"))
    middle = (left + right) / 2
    canvas.add(Words(middle, bottom + 34, across.label, "muted", SMALL, "middle"))
    for one in series:
        for point in one.points:
            x, y = plane.x(point.x), plane.y(point.y)
            if point.low is not None and point.high is not None:
                ends = [(plane.x(point.low), y), (plane.x(point.high), y)]
                canvas.add(Stroke(ends, one.role, 1.4))
            canvas.add(Dot(x, y, one.role, one.shape, 4.5, point.note, one.name))
    return canvas


def scatter(
    title: str, across: str, up: str, series: Sequence[Series], *, height: float = 330.0
) -> Canvas:
    """Draw points of a plane whose numbers mean nothing by themselves."""
    every = [point for one in series for point in one.points]
    plane = Plane(
        30,
        _TOP,
        WIDTH - 30 - _RIGHT,
        height,
        around([point.x for point in every], across),
        around([point.y for point in every], up),
    )
    canvas = _titled(title, _TOP + height + 28, series)
    plane.draw(canvas, ticks=False)
    for one in sorted(series, key=lambda one: one.look >= 0):  # the others below
        for x, y, note, _, _ in one.points:
            canvas.add(
                Dot(plane.x(x), plane.y(y), one.role, one.shape, 4.2, note, one.name, opacity=0.8)
            )
    return canvas


@dataclass(frozen=True)
class Heat:
    """A row of a heat map: shares from 0 to 1."""

    name: str
    shares: Sequence[float]
    notes: Sequence[str] = field(default_factory=list)


def heat(title: str, columns: Sequence[str], lines: Sequence[Heat], label: str) -> Canvas:
    """Draw a box for each share: the more, the fuller its colour; the number stands in it."""
    step = 30.0
    room = min(210.0, max((text_width(line.name, 12) for line in lines), default=0.0))
    left = room + 18
    width = (WIDTH - left - _RIGHT) / max(1, len(columns))
    canvas = Canvas(WIDTH, _TOP + 20 + step * len(lines) + 30, title)
    canvas.add(Words(12, 20, title, "ink", 14, bold=True))
    for number, column in enumerate(columns):
        middle = left + width * (number + 0.5)
        canvas.add(Words(middle, _TOP + 12, column, "muted", SMALL, "middle"))
    for row, line in enumerate(lines):
        y = _TOP + 20 + step * row
        name = fitted(line.name, room, 12)
        canvas.add(Words(left - 8, y + step / 2 + 4, name, "ink", 12, "end"))
        for number, share in enumerate(line.shares):
            x = left + width * number
            faint = 0.04 + 0.7 * min(1.0, max(0.0, share))
            note = f"{line.name}, {columns[number]}: {share:.4f}"
            canvas.add(
                Box(x + 1, y + 1, width - 2, step - 2, "c0", faint, note, line.name),
                Words(x + width / 2, y + step / 2 + 4, f"{share:.2f}", "ink", 12, "middle"),
            )
    canvas.add(Words(WIDTH - _RIGHT, canvas.height - 12, label, "muted", SMALL, "end"))
    return canvas


def _titled(title: str, height: float, series: Sequence[Series]) -> Canvas:
    """Make a canvas with its title above and its legend below."""
    entries = _legend([one for one in series if one.listed])
    lines = 1 + max((line for _, line, _ in entries), default=-1)
    canvas = Canvas(WIDTH, height + _ENTRY * lines + (0 if lines else 2), title)
    canvas.add(Words(12, 20, fitted(title, WIDTH - 24, 14), "ink", 14, bold=True))
    for x, line, one in entries:
        y = height + _ENTRY * line + 8
        if one.dashes or not one.dots:  # dashes tell apart what shares a colour and a shape
            canvas.add(Stroke([(x, y - 4), (x + 16, y - 4)], one.role, 1.8, one.dashes))
        if one.dots:
            canvas.add(Dot(x + 8, y - 4, one.role, one.shape, 4))
        name = fitted(one.name, WIDTH - 60, SMALL)
        canvas.add(Words(x + 22, y, name, "ink", SMALL))
    return canvas


def _legend(series: Sequence[Series]) -> list[tuple[float, int, Series]]:
    """Say where each entry begins, and in which line; a lone series needs none."""
    if len(series) < 2:
        return []
    found, x, line = [], 30.0, 0
    for one in series:
        width = 22 + min(text_width(one.name, SMALL), WIDTH - 60) + 16
        if x > 30 and x + width > WIDTH - 8:
            x, line = 30.0, line + 1
        found.append((x, line, one))
        x += width
    return found
