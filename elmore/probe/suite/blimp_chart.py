"""A picture of BLiMP: each direction on each phenomenon, beside published language models."""

from collections.abc import Sequence

from elmore.probe.drawing.axes import Axis
from elmore.probe.drawing.canvas import Canvas
from elmore.probe.drawing.charts import Point, Series, dot_plot
from elmore.probe.suite.blimp import METHODS
from elmore.probe.suite.scores import Score

_PHENOMENON = "phenomenon "
_ALL = "all"

PUBLISHED = {
    "LSTM": {
        _ALL: 0.698, "anaphor_agreement": 0.917, "argument_structure": 0.715, "binding": 0.735,
        "control_raising": 0.670, "determiner_noun_agreement": 0.854, "ellipsis": 0.676,
        "filler_gap_dependency": 0.739, "irregular_forms": 0.891, "island_effects": 0.466,
        "npi_licensing": 0.517, "quantifiers": 0.645, "s-selection": 0.791,
        "subject_verb_agreement": 0.801,
    },
    "Transformer-XL": {
        _ALL: 0.696, "anaphor_agreement": 0.941, "argument_structure": 0.695, "binding": 0.747,
        "control_raising": 0.715, "determiner_noun_agreement": 0.830, "ellipsis": 0.772,
        "filler_gap_dependency": 0.666, "irregular_forms": 0.782, "island_effects": 0.483,
        "npi_licensing": 0.552, "quantifiers": 0.693, "s-selection": 0.814,
        "subject_verb_agreement": 0.760,
    },
    "GPT-2": {
        _ALL: 0.830, "anaphor_agreement": 0.993, "argument_structure": 0.821, "binding": 0.809,
        "control_raising": 0.819, "determiner_noun_agreement": 0.958, "ellipsis": 0.894,
        "filler_gap_dependency": 0.813, "irregular_forms": 0.919, "island_effects": 0.727,
        "npi_licensing": 0.768, "quantifiers": 0.790, "s-selection": 0.807,
        "subject_verb_agreement": 0.864,
    },
}  # fmt: skip
"""Accuracies of Warstadt et al. (2020), means over the paradigms of a phenomenon: from
`models_summary.jsonl` of their data, which corrects the paper. It has s-selection in argument
structure; their data and this table have it apart.
"""


def draw_blimp(scores: Sequence[Score]) -> Canvas:
    """Draw the accuracy on all pairs and on each phenomenon, the best one on top.

    Args:
        scores: Those of `score_blimp`.
    """
    table = {
        (score.part.removeprefix(_PHENOMENON), score.method): score
        for score in scores
        if score.part == _ALL or score.part.startswith(_PHENOMENON)
    }
    names = sorted(
        {name for name, _ in table},
        key=lambda name: (name != _ALL, -table[name, "both"].score),
    )
    series = [
        Series(method, [_point(table[name, method], row) for row, name in enumerate(names)], style)
        for style, method in enumerate(METHODS)
    ]
    series += [
        Series(
            model,
            [
                Point(published[name], row, f"{model}: {100 * published[name]:.1f}")
                for row, name in enumerate(names)
                if name in published
            ],
            style,
        )
        for style, (model, published) in enumerate(PUBLISHED.items(), start=len(METHODS))
    ]
    lowest = min(point.x for one in series for point in one.points)
    axis = Axis(min(0.4, lowest), 1.0, "accuracy")
    labels = [name.replace("_", " ").replace("determiner", "det.") for name in names]  # which fit
    return dot_plot("BLiMP by phenomenon", labels, axis, series)


def _point(score: Score, row: int) -> Point:
    tooltip = f"{score.method}: {100 * score.score:.1f}"
    return Point(score.score, row, tooltip, score.low, score.high)
