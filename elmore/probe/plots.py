"""The figures: what is drawn of runs, probes, uses and texts."""

import math
from collections import Counter
from collections.abc import Sequence

from elmore.probe.context import Context
from elmore.probe.drawing.axes import Axis, around
from elmore.probe.drawing.canvas import SERIES, Canvas
from elmore.probe.drawing.charts import Heat, Point, Series, curves, heat, rows, scatter
from elmore.probe.reporting.printed import Layer, Senses, Text
from elmore.probe.reporting.trained import Several, Trained
from elmore.probe.use_map import Placed, UseMap
from elmore.probe.wordnet_files import described

_LOSS_POINTS = 160  # the loss of each update is noise; as many means are a curve
_TOKENS = 40  # of a text, that one figure holds
_UPDATE = "update"


def training_loss(title: str, runs: Sequence[Trained], unit: str = "training loss") -> Canvas:
    """Draw the loss that updates were made by."""
    series = [
        Series(run.name, _means(run.steps, run.losses), look, dots=False)
        for look, run in enumerate(runs)
    ]
    every = [point for one in series for point in one.points]
    across = around([point.x for point in every], _UPDATE, zero=True)
    up = around([point.y for point in every], unit)
    return curves(title, across, up, series)


def held_out(title: str, runs: Sequence[Trained], unit: str) -> Canvas:
    """Draw a dot for each evaluation of each run."""
    series = []
    for look, run in enumerate(runs):
        scored = [
            (step, scores[run.metric])
            for step, scores in run.evaluations
            if math.isfinite(scores.get(run.metric, math.nan))
        ]
        points = [Point(x, y, f"{run.name}, update {x}: {y:.4g}") for x, y in scored]
        series.append(Series(run.name, points, look))
    every = [point for one in series for point in one.points]
    across = around([point.x for point in every], _UPDATE, zero=True)
    return curves(title, across, around([point.y for point in every], unit), series)


def _means(steps: Sequence[int], values: Sequence[float]) -> list[Point]:
    """Give means over stretches of updates, at the middle of each."""
    size = max(1, math.ceil(len(steps) / _LOSS_POINTS))
    found = []
    for first in range(0, len(steps), size):
        some, at = values[first : first + size], steps[first : first + size]
        mean = sum(some) / len(some)
        if math.isfinite(mean):
            found.append(Point(sum(at) / len(at), mean))
    return found


def layer_weights(lines: Sequence[tuple[str, Sequence[float]]]) -> Canvas:
    """Draw what the layers weigh in each task, as Figure 2 of the paper does."""
    most = max(len(shares) for _, shares in lines)
    columns = ["tokens (0)", *(f"LSTM {layer}" for layer in range(1, most))]
    return heat(
        "What each layer weighs",
        columns,
        [Heat(name, shares) for name, shares in lines],
        "share of the layer in the learned mix; a row sums to 1",
    )


def sample_efficiency(title: str, many: Sequence[Several], split: str, metric: str) -> Canvas:
    """Draw the score against the number of training examples."""
    series = []
    for look, several in enumerate(many):
        points = []
        for part in several.summary["summary"]:
            score, count = part["scores"][split].get(metric), part["examples"]
            if score is None:
                continue
            mean, off = score["mean"], score["deviation"] or 0.0
            note = f"{several.name}, {count} examples: {mean:.2f} ± {off:.2f}"
            points.append(Point(count, mean, note, mean - off, mean + off))
        series.append(Series(several.name, sorted(points), look))
    every = [point for one in series for point in one.points]
    across = around([point.x for point in every], "training examples (log scale)", log=True)
    ends = [end for point in every for end in (point.low, point.high) if end is not None]
    return curves(title, across, around(ends, f"{metric} on {split} (%)"), series)


def parts_of_speech(title: str, layers: Sequence[Layer]) -> Canvas:
    """Draw how many tags each layer tells, and how many random ones."""
    true = [
        Point(100 * one.test, row, f"layer {one.layer}: {100 * one.test:.2f} %")
        for row, one in enumerate(layers)
    ]
    series = [Series("true tags", true, 0)]
    random = [
        Point(100 * one.control, row, f"layer {one.layer}, random tags: {100 * one.control:.2f} %")
        for row, one in enumerate(layers)
        if one.control is not None
    ]
    series += [Series("random tags (control)", random, 1)] if random else []
    across = around([point.x for one in series for point in one.points], "tags told (% of tokens)")
    return rows(title, [_layer(one.layer) for one in layers], across, series)


def senses(title: str, found: Senses) -> Canvas:
    """Draw the F1 of each row on each text, with its interval."""
    tables = {**({"held out": found.held_out} if found.held_out else {}), **found.tests}
    names = list(dict.fromkeys(row for table in tables.values() for row in table))
    series = []
    for look, (text, table) in enumerate(tables.items()):
        points = [
            Point(
                100 * scores["f1"],
                names.index(row) + min(0.22, 0.8 / len(tables)) * (look - (len(tables) - 1) / 2),
                f"{text}, {row}: {100 * scores['f1']:.1f}",
                100 * scores["f1_low"],
                100 * scores["f1_high"],
            )
            for row, scores in table.items()
        ]
        series.append(Series(text, points, look))
    ends = [end for one in series for p in one.points for end in (p.low, p.high) if end is not None]
    across = around(ends, "F1 (%), with its 95 % interval")
    chosen = [f"{_layer(name)} *" if name == found.chosen else _layer(name) for name in names]
    return rows(title, chosen, across, series, step=max(28, 9 * len(tables)))


def _layer(name: str) -> str:
    return f"layer {name}" if name[:1].isdecimal() else name


def context(title: str, found: Context) -> Canvas:
    """Draw, layer by layer, how alike uses of a word, words of a sentence and random uses are."""
    kinds = {
        "uses of one word": "self_similarity",
        "words of one sentence, with their mean": "intra_sentence",
        "random uses of different words": "anisotropy",
        "uses of one word, less random": "self_similarity_corrected",
    }
    series = []
    for look, (name, key) in enumerate(kinds.items()):
        points = [
            Point(layer.layer, getattr(layer, key), f"{name}, layer {layer.layer}: {value:.3f}")
            for layer in found.layers
            for value in [getattr(layer, key)]
        ]
        series.append(Series(name, points, look))
    values = [point.y for one in series for point in one.points]
    across = Axis(-0.15, len(found.layers) - 0.85, "layer (0 knows no context)", whole=True)
    return curves(title, across, around(values, "mean cosine", zero=True), series)


def use_map(found: UseMap) -> Canvas:
    """Draw the uses of a word: by sense where senses are known, by cluster where not."""
    sensed = any(use.sense for use in found.uses)
    groups: dict[str, list[Placed]] = {}
    for use in found.uses:
        groups.setdefault((use.sense or "") if sensed else str(use.cluster), []).append(use)
    counted = Counter({name: len(group) for name, group in groups.items() if name})
    kept = [name for name, _ in counted.most_common(len(SERIES) - 1 if sensed else len(SERIES))]
    if len(counted) == len(kept) + 1:  # one that is left has a place of its own
        kept = [name for name, _ in counted.most_common()]
    series = []
    for look, name in enumerate(kept):
        called = described(name) if sensed else f"cluster {int(name) + 1}"
        points = [_point(use) for use in groups[name]]
        series.append(Series(f"{called}: {len(points)}", points, look))
    rest = [use for name, group in groups.items() if name not in kept for use in group]
    if rest:
        called = "other senses" if sensed else "other clusters"
        series.append(Series(f"{called}: {len(rest)}", [_point(use) for use in rest], -1))
    if found.variance is None:
        axes = ("t-SNE, first direction (no unit)", "t-SNE, second direction (no unit)")
    else:
        names = ("first direction", "second direction")
        shares = zip(names, found.variance, strict=True)
        axes = tuple(f"{name} ({100 * share:.0f} % of the variance)" for name, share in shares)
    what = "senses" if sensed else "clusters"
    title = f"{len(found.uses)} uses of “{found.word}”, layer {found.layers}, by {what}"
    return scatter(title, axes[0], axes[1], series)


def _point(use: Placed) -> Point:
    return Point(use.x, use.y, f"{sentence(use)}\n{use.sense or ''}".strip())


def sentence(use: Placed, around_it: int = 12) -> str:
    """Write a use with the words around it, itself in brackets."""
    first, last = max(0, use.start - around_it), min(len(use.tokens), use.end + around_it)
    parts = [
        *(["…"] if first else []),
        *use.tokens[first : use.start],
        f"[{' '.join(use.tokens[use.start : use.end])}]",
        *use.tokens[use.end : last],
        *(["…"] if last < len(use.tokens) else []),
    ]
    return " ".join(parts)


def surprise(title: str, text: Text) -> Canvas:
    """Draw how many bits each word was worth to each direction."""
    words = text.tokens[:_TOKENS]
    series = []
    for look, (name, values) in enumerate(
        (("given what stands before", text.forward), ("given what stands after", text.backward))
    ):
        points = [
            Point(bits(value), row, f"{word}: {bits(value):.2f} bits {name}")
            for row, (word, value) in enumerate(zip(words, values, strict=False))
        ]
        series.append(Series(name, points, look))
    every = [point.x for one in series for point in one.points]
    across = around(every, "surprise (bits)", zero=True)
    names = [word if known else f"{word} ?" for word, known in zip(words, text.known, strict=False)]
    return rows(title, names, across, series, step=22)


def bits(log_probability: float) -> float:
    """Turn a natural logarithm of a probability into bits of surprise."""
    return -log_probability / math.log(2)
