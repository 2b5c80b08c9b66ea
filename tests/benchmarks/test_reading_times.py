"""benchmarks/reading_times.py: its statistics, on numbers whose answer is known."""

import runpy
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.scripts import ROOT


@pytest.fixture(scope="module")
def script():
    return SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks/reading_times.py")))


def test_pieces_are_summed_by_word_without_punctuation(script):
    pieces = [("If", ""), (" mo", "-2"), ("ors", "-1"), (".", "-8"), (" It", "-3"), ("'s", "-1")]
    bits, whole = script.join_pieces(["If", "moors.", "It's"], pieces)
    np.testing.assert_allclose(bits, np.array([0, 3, 4]) / np.log(2))
    assert whole == [True, False, False]


def test_lags_are_the_words_before(script):
    np.testing.assert_array_equal(script.with_lags([1, 2, 3]), [[1, 0, 0], [2, 1, 0], [3, 2, 1]])


def test_only_what_predicts_other_stories_gains(script, rng):
    story = np.repeat(np.arange(4), 200)
    cause, noise, error = rng.normal(size=(3, 800))
    time = cause + error + story  # stories differ in speed, which no predictor may explain
    data = {"story": story, "time": time, "length": noise[::-1], "cause": cause, "noise": noise}
    base, found, other = (
        script.held_out(data, names).sum()
        for names in (["length"], ["length", "cause"], ["length", "noise"])
    )
    # The variance halves, from 2 to 1
    assert found - base == pytest.approx(400 * np.log(2), rel=0.15)
    assert other - base < 3


def test_a_partial_correlation_leaves_out_what_the_controls_explain(script, rng):
    control, one, other = rng.normal(size=(3, 2000))
    controls = np.column_stack([np.ones(2000), control])
    assert abs(script.partial_correlation(control + one, control + other, controls)) < 0.07
    assert script.partial_correlation(one, one + control, controls) == pytest.approx(1)
