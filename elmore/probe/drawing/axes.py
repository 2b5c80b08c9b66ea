"""Axes: scales, ticks and labels."""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elmore.probe.drawing.canvas import Canvas, Polyline, Text

SMALL = 12.0
_MANY_DECADES = 4


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic scale from `low` to `high`."""

    low: float
    high: float
    label: str
    log: bool = False
    whole: bool = False
    """Whether ticks are integers only."""

    def fraction(self, value: float) -> float:
        """Return the position of a value: 0 at the low end, 1 at the high end."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        return (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """Return round numbers between the ends."""
        candidates = (
            _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high)
        )
        whole = [tick for tick in candidates if not self.whole or float(tick).is_integer()]
        return whole or [self.low, self.high]


def axis_for(
    values: Iterable[float],
    label: str,
    *,
    log: bool = False,
    whole: bool = False,
    zero: bool = False,
) -> Axis:
    """Return an axis that covers all values with a margin; with `zero` it starts at 0."""
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (1.0, 2.0)
    low = min(low, 0.0) if zero and not log else low
    if log:
        margin = max(1.05, (high / low) ** 0.04)
        return Axis(low / margin, high * margin, label, log, whole)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    below = 0.0 if zero and low >= 0 else margin
    return Axis(low - below, high + margin, label, log, whole)


def component_labels(variance: Sequence[float]) -> tuple[str, ...]:
    """Return the labels of the first two principal components."""
    pairs = zip(("first component", "second component"), variance, strict=True)
    return tuple(f"{name} ({100 * fraction:.0f} % of the variance)" for name, fraction in pairs)


def _linear_ticks(low: float, high: float) -> list[float]:
    raw_step = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw_step))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= raw_step * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = math.log10(high / low)
    if decades < 1:
        return [tick for tick in _linear_ticks(low, high) if tick > 0]
    steps = (1, 2, 5) if decades < _MANY_DECADES else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def format_tick(value: float) -> str:
    """Format a tick: 0.25, 50, 20k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:g}{letter}"
    return f"{value:.6g}"


def text_width(text: str, size: float) -> float:
    """Estimate the width of a line of text, generously, because fonts differ."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.56 * (len(text) - wide) + 1.05 * wide)


def truncate_text(text: str, width: float, size: float) -> str:
    """Shorten a text that is wider than `width`."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…"


@dataclass(frozen=True)
class PlotArea:
    """The part of a canvas between two axes."""

    left: float
    top: float
    width: float
    height: float
    x_axis: Axis
    y_axis: Axis

    def x(self, value: float) -> float:
        """Return the pixel of a value on the x axis."""
        return self.left + self.width * self.x_axis.fraction(value)

    def y(self, value: float) -> float:
        """Return the pixel of a value on the y axis."""
        return self.top + self.height * (1 - self.y_axis.fraction(value))

    def draw(self, canvas: Canvas, *, ticks: bool = True) -> None:
        """Draw the grid, the ticks and the axis labels."""
        bottom, right = self.top + self.height, self.left + self.width
        for tick in self.y_axis.ticks() if ticks else ():
            y = self.y(tick)
            canvas.add(Polyline([(self.left, y), (right, y)], "grid"))
            canvas.add(Text(self.left - 6, y + 4, format_tick(tick), "muted", SMALL, "end"))
        if ticks:
            draw_x_ticks(canvas, self, self.x_axis.ticks())
        canvas.add(
            Polyline([(self.left, self.top), (self.left, bottom), (right, bottom)], "muted"),
            Text((self.left + right) / 2, bottom + (34 if ticks else 18), self.x_axis.label,
                  "muted", SMALL, "middle"),
            Text(14, (self.top + bottom) / 2, self.y_axis.label, "muted", SMALL, "middle",
                  vertical=True),
        )  # fmt: skip


def draw_x_ticks(canvas: Canvas, area: PlotArea, ticks: Sequence[float]) -> None:
    """Draw the ticks of the x axis; labels that would overlap are skipped."""
    bottom, end = area.top + area.height, -math.inf
    for tick in ticks:
        x, text = area.x(tick), format_tick(tick)
        half = text_width(text, SMALL) / 2
        canvas.add(Polyline([(x, area.top), (x, bottom)], "grid"))
        if x - half > end + 4:
            canvas.add(Text(x, bottom + 16, text, "muted", SMALL, "middle"))
            end = x + half
