"""Shapes and labels, as SVG and as PNG."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.probe.drawing import axes, files
from elmore.probe.drawing.canvas import LIGHT, SERIES, SHAPES, Canvas, Rect, marker_outline


@given(st.text(max_size=40), st.floats(20, 300))
def test_a_label_that_is_too_long_is_cut_to_its_place_and_says_so(text, width):
    result = axes.truncate_text(text, width, 12)
    if axes.text_width(text, 12) <= width:
        assert result == text
    else:
        assert result.endswith("…")
        assert text.startswith(result[:-1])
        assert axes.text_width(result, 12) <= width


def test_every_series_has_a_shape_of_its_own():
    corners = {shape: marker_outline(shape, 4.0) for shape in SHAPES}
    assert len(SHAPES) == len(SERIES) == len({tuple(result) for result in corners.values()})
    assert [shape for shape, result in corners.items() if not result] == ["circle"]
    x_axis, down = zip(*corners["bar"], strict=True)
    assert max(x_axis) - min(x_axis) > max(down) - min(down)


def test_a_box_has_its_colour_in_the_png_and_only_where_it_is():
    pytest.importorskip("matplotlib")
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    canvas = Canvas(100, 50, "a box")
    canvas.add(Rect(50, 0, 50, 50, "c0"))
    pixels = imread(io.BytesIO(files.render_png(canvas)))[..., :3]
    height, width, _ = pixels.shape
    box, rest = pixels[height // 2, 3 * width // 4], pixels[height // 2, width // 4]
    np.testing.assert_allclose(box, to_rgb(LIGHT["c0"]), atol=0.01)
    np.testing.assert_allclose(rest, to_rgb(LIGHT["surface"]), atol=0.01)
