"""Save drawings as .svg, or as .png with matplotlib."""

import io
import warnings
from pathlib import Path
from typing import Any

from elmore import atomic
from elmore.errors import ConfigError, DataError
from elmore.probe.drawing.canvas import (
    LIGHT,
    Canvas,
    Marker,
    Polyline,
    Rect,
    Text,
    marker_outline,
    strip_invalid_xml,
)

_POINTS_PER_PIXEL = 0.75
_DPI = 192  # two dots per pixel


def check_path(path: Path) -> None:
    """Raise an error for a path that cannot be written, before anything is drawn."""
    if path.suffix not in (".svg", ".png"):
        raise ConfigError(f"{path}: the suffix selects the format; expected .svg or .png")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"{path}: expected a file name in an existing folder")
    if path.suffix == ".png":
        check_png()


def check_png() -> None:
    """Raise an error if matplotlib is missing, before anything is drawn."""
    _import_matplotlib()


def save(canvas: Canvas, path: Path) -> None:
    """Write a drawing, replacing an earlier one.

    Raises:
        ConfigError: The path is not one of a drawing.
        DataError: The file cannot be written.
    """
    check_path(path)
    data = render(canvas, path.suffix)
    with atomic.explain_write_errors(path, "free some space, or pass another name"):
        atomic.write(path, data)


def render(canvas: Canvas, suffix: str) -> bytes:
    """Return the bytes of a .svg or .png file."""
    return render_png(canvas) if suffix == ".png" else f"{canvas.svg(standalone=True)}\n".encode()


def render_png(canvas: Canvas) -> bytes:
    """Render the shapes with matplotlib, in light colours."""
    figures = _import_matplotlib()
    figure = figures.Figure(figsize=(canvas.width / 96, canvas.height / 96), dpi=_DPI)
    figure.set_facecolor(LIGHT["surface"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, canvas.width), ylim=(canvas.height, 0))
    axes.set_axis_off()
    for order, shape in enumerate(canvas.shapes):
        _RENDERERS[type(shape)](axes, shape, order)
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about characters that the font lacks
        figure.savefig(out, format="png", dpi=_DPI, metadata={"Software": None})
    return out.getvalue()


def _draw_polyline(axes: Any, one: Polyline, order: int) -> None:  # noqa: ANN401 -- matplotlib's own
    dashes = (0, tuple(float(part) for part in one.dashes.split())) if one.dashes else "solid"
    x, y = zip(*one.points, strict=True)
    look = {
        "color": LIGHT[one.role],
        "linewidth": one.width * _POINTS_PER_PIXEL,
        "linestyle": dashes,
    }
    axes.plot(x, y, **look, alpha=one.opacity, zorder=order, scalex=False, scaley=False)


def _draw_marker(axes: Any, one: Marker, order: int) -> None:  # noqa: ANN401
    from matplotlib.patches import Circle, Polygon

    corners = [(one.x + x, one.y + y) for x, y in marker_outline(one.shape, one.size)]
    mark = Polygon(corners) if corners else Circle((one.x, one.y), one.size)
    mark.set(facecolor=LIGHT[one.role], edgecolor="none", alpha=one.opacity, zorder=order)
    axes.add_patch(mark)


def _draw_rect(axes: Any, one: Rect, order: int) -> None:  # noqa: ANN401
    from matplotlib.patches import Rectangle

    box = Rectangle((one.x, one.y), one.width, one.height)
    box.set(facecolor=LIGHT[one.role], edgecolor="none", alpha=one.opacity, zorder=order)
    axes.add_patch(box)


def _draw_text(axes: Any, one: Text, order: int) -> None:  # noqa: ANN401
    side = {"start": "left", "middle": "center", "end": "right"}[one.anchor]
    text = strip_invalid_xml(one.text).replace("$", r"\$")  # not a formula
    axes.text(
        one.x,
        one.y,
        text,
        color=LIGHT[one.role],
        fontsize=one.size * _POINTS_PER_PIXEL * 0.94,  # matplotlib's default font is wide
        fontweight="bold" if one.bold else "normal",
        ha=side,
        va="baseline",
        rotation=90 if one.vertical else 0,
        rotation_mode="anchor",
        zorder=order,
    )


_RENDERERS: dict[type, Any] = {
    Polyline: _draw_polyline,
    Marker: _draw_marker,
    Rect: _draw_rect,
    Text: _draw_text,
}


def _import_matplotlib() -> Any:  # noqa: ANN401 -- the package
    try:
        from matplotlib import figure
    except ImportError as error:
        raise DataError(
            "drawing .png needs matplotlib: pip install 'elmore[viz]'; .svg needs nothing"
        ) from error
    return figure
