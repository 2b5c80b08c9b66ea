"""Drawings as files: .svg, and .png by way of matplotlib."""

import io
import warnings
from pathlib import Path
from typing import Any

from elmore import atomic
from elmore.errors import ConfigError, DataError
from elmore.probe.drawing.canvas import LIGHT, Box, Canvas, Dot, Stroke, Words, outline, printable

_POINTS = 0.75  # in a pixel
_DPI = 192  # two dots a pixel


def check(path: Path) -> None:
    """Refuse a name that no drawing can have, before there is one."""
    if path.suffix not in (".svg", ".png"):
        raise ConfigError(f"{path}: the ending says the format; expected .svg or .png")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"{path}: expected the name of a file in a folder that is there")
    if path.suffix == ".png":
        check_png()


def check_png() -> None:
    """Refuse to draw a .png where matplotlib is missing, before there is anything to draw."""
    _matplotlib()


def save(canvas: Canvas, path: Path) -> None:
    """Write a drawing, in place of an earlier one."""
    check(path)
    atomic.write(path, rendered(canvas, path.suffix))


def rendered(canvas: Canvas, ending: str) -> bytes:
    """Give the bytes of a file with that ending."""
    return png(canvas) if ending == ".png" else f"{canvas.svg(alone=True)}\n".encode()


def png(canvas: Canvas) -> bytes:
    """Draw the same shapes as dots of colour, on light ground."""
    figures = _matplotlib()
    figure = figures.Figure(figsize=(canvas.width / 96, canvas.height / 96), dpi=_DPI)
    figure.set_facecolor(LIGHT["surface"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, canvas.width), ylim=(canvas.height, 0))
    axes.set_axis_off()
    for order, shape in enumerate(canvas.shapes):
        _DRAWN[type(shape)](axes, shape, order)
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a font without a letter draws a box for it
        figure.savefig(out, format="png", dpi=_DPI, metadata={"Software": None})
    return out.getvalue()


def _stroke(axes: Any, one: Stroke, order: int) -> None:  # noqa: ANN401 -- matplotlib's own
    dashes = (0, tuple(float(part) for part in one.dashes.split())) if one.dashes else "solid"
    x, y = zip(*one.points, strict=True)
    look = {"color": LIGHT[one.role], "linewidth": one.width * _POINTS, "linestyle": dashes}
    axes.plot(x, y, **look, alpha=one.opacity, zorder=order, scalex=False, scaley=False)


def _dot(axes: Any, one: Dot, order: int) -> None:  # noqa: ANN401
    from matplotlib.patches import Circle, Polygon

    corners = [(one.x + x, one.y + y) for x, y in outline(one.shape, one.size)]
    mark = Polygon(corners) if corners else Circle((one.x, one.y), one.size)
    mark.set(facecolor=LIGHT[one.role], edgecolor="none", alpha=one.opacity, zorder=order)
    axes.add_patch(mark)


def _box(axes: Any, one: Box, order: int) -> None:  # noqa: ANN401
    from matplotlib.patches import Rectangle

    box = Rectangle((one.x, one.y), one.width, one.height)
    box.set(facecolor=LIGHT[one.role], edgecolor="none", alpha=one.opacity, zorder=order)
    axes.add_patch(box)


def _words(axes: Any, one: Words, order: int) -> None:  # noqa: ANN401
    side = {"start": "left", "middle": "center", "end": "right"}[one.anchor]
    text = printable(one.text).replace("$", r"\$")  # no formula
    axes.text(
        one.x,
        one.y,
        text,
        color=LIGHT[one.role],
        fontsize=one.size * _POINTS * 0.94,  # matplotlib's own font is a wide one
        fontweight="bold" if one.bold else "normal",
        ha=side,
        va="baseline",
        rotation=90 if one.upright else 0,
        rotation_mode="anchor",
        zorder=order,
    )


_DRAWN: dict[type, Any] = {Stroke: _stroke, Dot: _dot, Box: _box, Words: _words}


def _matplotlib() -> Any:  # noqa: ANN401 -- the package
    try:
        from matplotlib import figure
    except ImportError as error:
        raise DataError(
            "drawing .png needs matplotlib: pip install 'elmore[viz]'; .svg needs nothing"
        ) from error
    return figure
