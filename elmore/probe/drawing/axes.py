"""Axes: where a number lies between two ends, and at which round numbers to say so."""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elmore.probe.drawing.canvas import Canvas, Stroke, Words

SMALL = 12.0
_MANY_DECADES = 4


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, evenly or by powers of ten."""

    low: float
    high: float
    label: str
    log: bool = False
    whole: bool = False
    """Only whole numbers have a place there."""

    def share(self, value: float) -> float:
        """Say where a value lies: 0 at the low end, 1 at the high one."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        return (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """Give round numbers between the ends."""
        found = _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)
        whole = [tick for tick in found if not self.whole or float(tick).is_integer()]
        return whole or [self.low, self.high]


def around(
    values: Iterable[float],
    label: str,
    *,
    log: bool = False,
    whole: bool = False,
    zero: bool = False,
) -> Axis:
    """Make an axis that holds all values, with a little room; with `zero` it begins there."""
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (1.0, 2.0)
    low = min(low, 0.0) if zero and not log else low
    if log:
        room = max(1.05, (high / low) ** 0.04)
        return Axis(low / room, high * room, label, log, whole)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    below = 0.0 if zero and low >= 0 else room
    return Axis(low - below, high + room, label, log, whole)


def _even_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = math.log10(high / low)
    if decades < 1:
        return [tick for tick in _even_ticks(low, high) if tick > 0]
    steps = (1, 2, 5) if decades < _MANY_DECADES else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in found if low <= tick <= high]


def shown(value: float) -> str:
    """Write a tick: 0.25, 50, 20k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:g}{letter}"
    return f"{value:.6g}"


def text_width(text: str, size: float) -> float:
    """Guess how wide a line of text is; fonts differ, so generously."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.56 * (len(text) - wide) + 1.05 * wide)


def fitted(text: str, width: float, size: float) -> str:
    """Cut a text that would be wider."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…"


@dataclass(frozen=True)
class Plane:
    """The part of a canvas that two axes span."""

    left: float
    top: float
    width: float
    height: float
    across: Axis
    up: Axis

    def x(self, value: float) -> float:
        """Say where a value of the lower axis lies."""
        return self.left + self.width * self.across.share(value)

    def y(self, value: float) -> float:
        """Say where a value of the upright axis lies."""
        return self.top + self.height * (1 - self.up.share(value))

    def draw(self, canvas: Canvas, *, ticks: bool = True) -> None:
        """Draw the grid, its numbers and what the axes are called."""
        bottom, right = self.top + self.height, self.left + self.width
        for tick in self.up.ticks() if ticks else ():
            y = self.y(tick)
            canvas.add(Stroke([(self.left, y), (right, y)], "grid"))
            canvas.add(Words(self.left - 6, y + 4, shown(tick), "muted", SMALL, "end"))
        if ticks:
            lower_ticks(canvas, self, self.across.ticks())
        canvas.add(
            Stroke([(self.left, self.top), (self.left, bottom), (right, bottom)], "muted"),
            Words((self.left + right) / 2, bottom + (34 if ticks else 18), self.across.label,
                  "muted", SMALL, "middle"),
            Words(14, (self.top + bottom) / 2, self.up.label, "muted", SMALL, "middle",
                  upright=True),
        )  # fmt: skip


def lower_ticks(canvas: Canvas, plane: Plane, ticks: Sequence[float]) -> None:
    """Write the numbers of the lower axis, as many as have room."""
    bottom, end = plane.top + plane.height, -math.inf
    for tick in ticks:
        x, text = plane.x(tick), shown(tick)
        half = text_width(text, SMALL) / 2
        canvas.add(Stroke([(x, plane.top), (x, bottom)], "grid"))
        if x - half > end + 4:
            canvas.add(Words(x, bottom + 16, text, "muted", SMALL, "middle"))
            end = x + half
