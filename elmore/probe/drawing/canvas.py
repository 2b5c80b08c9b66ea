"""A canvas of polylines, markers, rectangles and text, rendered as SVG.

A shape has a colour role instead of a colour, so that one drawing fits light and dark pages:
`stylesheet` defines the roles in each. The eight colours of series can be distinguished with any
colour blindness (after Okabe and Ito), and series also differ in the shape of their markers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from xml.sax.saxutils import escape, quoteattr

Anchor = Literal["start", "middle", "end"]

LIGHT = {
    "surface": "#ffffff",
    "ink": "#1b1f24",
    "muted": "#59636e",
    "grid": "#dde1e6",
    "other": "#8c959f",
    "c0": "#0072b2",
    "c1": "#d55e00",
    "c2": "#009e73",
    "c3": "#cc79a7",
    "c4": "#e69f00",
    "c5": "#56b4e9",
    "c6": "#6a3d9a",
    "c7": "#7a5c00",
}
DARK = {
    "surface": "#14181d",
    "ink": "#e6e9ed",
    "muted": "#a3adb8",
    "grid": "#333b44",
    "other": "#7d8792",
    "c0": "#4fb0ee",
    "c1": "#ff8a4c",
    "c2": "#34d3a3",
    "c3": "#f0a3cd",
    "c4": "#ffc24d",
    "c5": "#9fd8ff",
    "c6": "#b99aee",
    "c7": "#d2b45a",
}
SERIES = tuple(role for role in LIGHT if role[1:].isdecimal())
SHAPES = ("circle", "square", "triangle", "diamond", "down", "cross", "pentagon", "bar")
"""Marker shapes of the series."""

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


class Polyline(NamedTuple):
    """A line through points."""

    points: list[tuple[float, float]]
    role: str
    width: float = 1.0
    dashes: str = ""
    series: str = ""
    opacity: float = 1.0


class Marker(NamedTuple):
    """A marker at a point, with an optional tooltip."""

    x: float
    y: float
    role: str
    shape: str = "circle"
    size: float = 3.5
    tooltip: str = ""
    series: str = ""
    opacity: float = 1.0


class Rect(NamedTuple):
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    role: str
    opacity: float = 1.0
    tooltip: str = ""
    series: str = ""


class Text(NamedTuple):
    """A line of text; `y` is its baseline."""

    x: float
    y: float
    text: str
    role: str = "ink"
    size: float = 12.0
    anchor: Anchor = "start"
    bold: bool = False
    vertical: bool = False
    """Rotated by 90 degrees, from bottom to top."""


Shape = Polyline | Marker | Rect | Text


@dataclass
class Canvas:
    """A drawing with pixels as units."""

    width: float
    height: float
    title: str
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Add shapes on top of the others."""
        self.shapes.extend(shapes)

    def svg(self, *, standalone: bool = False) -> str:
        """Return SVG for a page that includes `stylesheet`, or a standalone file."""
        size = f"{self.width:g} {self.height:g}"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img"'
        if standalone:
            head += f' width="{self.width:g}" height="{self.height:g}"'
        parts = [f"{head} aria-label={quoteattr(strip_invalid_xml(self.title))}>"]
        if standalone:
            parts.append(f"<title>{escape(strip_invalid_xml(self.title))}</title>")
            parts.append(f"<style>{stylesheet()}</style>")
            parts.append('<rect width="100%" height="100%" class="f-surface"/>')
        parts += [_RENDERERS[type(shape)](shape) for shape in self.shapes]
        return "\n".join([*parts, "</svg>"])


def stylesheet() -> str:
    """Return the CSS of the colour roles, for light and dark pages; print is light."""
    dark = _rules(DARK)
    return (
        f"svg text{{font-family:{_FONT};stroke:none}}svg path.s{{fill:none}}"
        f"{_rules(LIGHT)}@media screen and (prefers-color-scheme:dark){{{dark}}}"
    )


def _rules(palette: dict[str, str]) -> str:
    rules = (
        f".f-{role}{{fill:{code}}}.s-{role}{{stroke:{code}}}" for role, code in palette.items()
    )
    return "".join(rules)


def strip_invalid_xml(text: str) -> str:
    """Remove characters that XML does not allow: controls and surrogates."""
    valid = (c for c in text if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff"))
    return "".join(c for c in valid if c not in "\ufffe\uffff")


def marker_outline(shape: str, size: float) -> list[tuple[float, float]]:
    """Return the corners of a marker around the origin; a circle has none."""
    big, thin = size * 1.25, size * 0.35
    corners = {
        "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        "triangle": [(0, -1.25), (1.15, 0.9), (-1.15, 0.9)],
        "down": [(0, 1.25), (1.15, -0.9), (-1.15, -0.9)],
        "diamond": [(0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)],
        "pentagon": [(0, -1.2), (1.14, -0.37), (0.7, 0.97), (-0.7, 0.97), (-1.14, -0.37)],
    }
    if shape == "cross":
        a, b = thin, big
        return [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a),
                (a, b), (-a, b), (-a, a), (-b, a), (-b, -a), (-a, -a)]  # fmt: skip
    if shape == "bar":
        return [(-big, -thin), (big, -thin), (big, thin), (-big, thin)]
    return [(size * x * 0.92, size * y * 0.92) for x, y in corners.get(shape, [])]


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _pairs(points: Iterable[tuple[float, float]]) -> str:
    return "L".join(f"{_number(x)} {_number(y)}" for x, y in points)


def _shared_attributes(shape: Marker | Rect | Polyline) -> str:
    """Return the attributes that all shapes have."""
    series = f" data-series={quoteattr(strip_invalid_xml(shape.series))}" if shape.series else ""
    faint = f' opacity="{_number(shape.opacity)}"' if shape.opacity < 1 else ""
    return series + faint


def _element(name: str, rest: str, tooltip: str) -> str:
    if not tooltip:
        return f"<{name} {rest}/>"
    return f"<{name} {rest}><title>{escape(strip_invalid_xml(tooltip))}</title></{name}>"


def _polyline(one: Polyline) -> str:
    dashes = f' stroke-dasharray="{one.dashes}"' if one.dashes else ""
    look = f'stroke-width="{_number(one.width)}" stroke-linejoin="round"{dashes}'
    shared = _shared_attributes(one)
    return f'<path class="s s-{one.role}" {look}{shared} d="M{_pairs(one.points)}"/>'


def _marker(one: Marker) -> str:
    look = f'class="dot f-{one.role}"{_shared_attributes(one)}'
    corners = marker_outline(one.shape, one.size)
    if not corners:
        position = f'cx="{_number(one.x)}" cy="{_number(one.y)}" r="{_number(one.size)}"'
        return _element("circle", f"{look} {position}", one.tooltip)
    outline = _pairs((one.x + x, one.y + y) for x, y in corners)
    return _element("path", f'{look} d="M{outline}Z"', one.tooltip)


def _rect(one: Rect) -> str:
    position = f'x="{_number(one.x)}" y="{_number(one.y)}"'
    size = f'width="{_number(one.width)}" height="{_number(one.height)}"'
    return _element(
        "rect", f'class="f-{one.role}"{_shared_attributes(one)} {position} {size}', one.tooltip
    )


def _text(one: Text) -> str:
    x, y = _number(one.x), _number(one.y)
    rotation = f' transform="rotate(-90 {x} {y})"' if one.vertical else ""
    look = f'class="f-{one.role}" font-size="{_number(one.size)}" text-anchor="{one.anchor}"'
    bold = ' font-weight="600"' if one.bold else ""
    return (
        f'<text x="{x}" y="{y}" {look}{bold}{rotation}>{escape(strip_invalid_xml(one.text))}</text>'
    )


_RENDERERS: dict[type, Callable[[Any], str]] = {
    Polyline: _polyline,
    Marker: _marker,
    Rect: _rect,
    Text: _text,
}
