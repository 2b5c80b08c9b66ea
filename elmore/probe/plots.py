"""The figures of runs, probes, occurrences and texts."""

import math
from collections import Counter
from collections.abc import Sequence

from elmore.probe.context import Contextuality
from elmore.probe.drawing.axes import Axis, axis_for, component_labels
from elmore.probe.drawing.canvas import SERIES, Canvas
from elmore.probe.drawing.charts import (
    HeatmapRow,
    Point,
    Series,
    dot_plot,
    heatmap,
    line_chart,
    scatter_plot,
)
from elmore.probe.linear_probe import LayerScores
from elmore.probe.occurrence_map import MappedOccurrence, OccurrenceMap, format_occurrence
from elmore.probe.reporting.load_results import ScoredText
from elmore.probe.reporting.load_runs import Sweep, TrainingRun
from elmore.probe.senses import SenseResults
from elmore.probe.wordnet import describe_sense
from elmore.tasks.results import Results
from elmore.tasks.results import label_scores as label_f1

_LOSS_POINTS = 160  # means of the noisy loss that make a curve
_MAX_TOKENS = 40  # of a text in one figure
_UPDATE = "update"
_MAX_LABELS = 14  # of a task in one figure; the others are one
_OTHER = "other"


def training_loss(title: str, runs: Sequence[TrainingRun], unit: str = "training loss") -> Canvas:
    """Draw the training loss."""
    series = [
        Series(run.name, _means(run.steps, run.losses), style_index, markers=False)
        for style_index, run in enumerate(runs)
    ]
    every = [point for one in series for point in one.points]
    x_axis = axis_for([point.x for point in every], _UPDATE, zero=True)
    y_axis = axis_for([point.y for point in every], unit)
    return line_chart(title, x_axis, y_axis, series)


def held_out(title: str, runs: Sequence[TrainingRun], unit: str) -> Canvas:
    """Draw the evaluations of each run."""
    series = []
    for style_index, run in enumerate(runs):
        scored = [
            (step, scores[run.metric])
            for step, scores in run.evaluations
            if math.isfinite(scores.get(run.metric, math.nan))
        ]
        points = [Point(x, y, f"{run.name}, update {x}: {y:.4g}") for x, y in scored]
        series.append(Series(run.name, points, style_index))
    every = [point for one in series for point in one.points]
    x_axis = axis_for([point.x for point in every], _UPDATE, zero=True)
    return line_chart(title, x_axis, axis_for([point.y for point in every], unit), series)


def _means(steps: Sequence[int], values: Sequence[float]) -> list[Point]:
    """Return means over consecutive updates."""
    size = max(1, math.ceil(len(steps) / _LOSS_POINTS))
    points = []
    for first in range(0, len(steps), size):
        block, at = values[first : first + size], steps[first : first + size]
        mean = sum(block) / len(block)
        if math.isfinite(mean):
            points.append(Point(sum(at) / len(at), mean))
    return points


def layer_weights(lines: Sequence[tuple[str, Sequence[float]]]) -> Canvas:
    """Draw the layer weights of each task, as in Figure 2 of the paper."""
    num_layers = max(len(weights) for _, weights in lines)
    columns = ["tokens (0)", *(f"LSTM {layer}" for layer in range(1, num_layers))]
    return heatmap(
        "Layer weights",
        columns,
        [HeatmapRow(name, weights) for name, weights in lines],
        "weight of the layer in the learned mix; a row sums to 1",
    )


def sample_efficiency(title: str, sweeps: Sequence[Sweep], split: str, metric: str) -> Canvas:
    """Draw the score against the number of training examples."""
    series = []
    for style_index, sweep in enumerate(sweeps):
        points = []
        for part in sweep.summary["summary"]:
            score, count = part["scores"][split].get(metric), part["examples"]
            if score is None:
                continue
            mean, off = score["mean"], score["deviation"] or 0.0
            tooltip = f"{sweep.name}, {count} examples: {mean:.2f} ± {off:.2f}"
            points.append(Point(count, mean, tooltip, mean - off, mean + off))
        series.append(Series(sweep.name, sorted(points), style_index))
    every = [point for one in series for point in one.points]
    x_axis = axis_for([point.x for point in every], "training examples (log scale)", log=True)
    ends = [end for point in every for end in (point.low, point.high) if end is not None]
    return line_chart(title, x_axis, axis_for(ends, f"{metric} on {split} (%)"), series)


def label_scores(title: str, results: Results) -> Canvas:
    """Draw the F1 of each label as a bar."""
    scores = list(label_f1(results.confusion).items())[:_MAX_LABELS]
    points = [
        Point(
            one.f1,
            row,
            f"{label}: F1 {one.f1:.1f}, precision {one.precision:.1f}, recall {one.recall:.1f}, "
            f"{one.count:,} times",
        )
        for row, (label, one) in enumerate(scores)
    ]
    names = [label for label, _ in scores]
    return dot_plot(title, names, Axis(0, 100, "F1 (%)"), [Series("F1", points, 0)], bars=True)


def confusion(title: str, results: Results) -> Canvas:
    """Draw which share of each gold label was predicted as which label."""
    labels = list(label_f1(results.confusion))[: _MAX_LABELS - 1]
    counts = Counter[tuple[str, str]]()
    for one in results.confusion:
        gold, predicted = (
            label if label in labels else _OTHER for label in (one.gold, one.predicted)
        )
        counts[gold, predicted] += one.count
    if any(_OTHER in pair for pair in counts):
        labels.append(_OTHER)
    rows = []
    for gold in labels:
        total = max(1, sum(counts[gold, predicted] for predicted in labels))
        rows.append(HeatmapRow(gold, [counts[gold, predicted] / total for predicted in labels]))
    return heatmap(title, labels, rows, "share of the gold label of a row; columns: predicted")


def parts_of_speech(title: str, layers: Sequence[LayerScores]) -> Canvas:
    """Draw the accuracy of each layer on true and on random tags."""
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
    x_axis = axis_for([point.x for one in series for point in one.points], "accuracy (% of tokens)")
    return dot_plot(title, [_layer(one.layer) for one in layers], x_axis, series)


def senses(title: str, results: SenseResults) -> Canvas:
    """Draw the F1 of each row on each text, with its confidence interval."""
    tables = {**({"held out": results.held_out} if results.held_out else {}), **results.tests}
    names = list(dict.fromkeys(row for table in tables.values() for row in table))
    series = []
    for style_index, (text, table) in enumerate(tables.items()):
        points = [
            Point(
                100 * scores["f1"],
                names.index(row)
                + min(0.22, 0.8 / len(tables)) * (style_index - (len(tables) - 1) / 2),
                f"{text}, {row}: {100 * scores['f1']:.1f}",
                100 * scores["f1_low"],
                100 * scores["f1_high"],
            )
            for row, scores in table.items()
        ]
        series.append(Series(text, points, style_index))
    ends = [end for one in series for p in one.points for end in (p.low, p.high) if end is not None]
    x_axis = axis_for(ends, "F1 (%), with its 95 % interval")
    row_names = [f"{_layer(name)} *" if name == results.chosen else _layer(name) for name in names]
    return dot_plot(title, row_names, x_axis, series, step=max(28, 9 * len(tables)))


def _layer(name: str) -> str:
    return f"layer {name}" if name[:1].isdecimal() else name


def context(title: str, results: Contextuality) -> Canvas:
    """Draw the mean similarities of each layer."""
    kinds = {
        "occurrences of one word": "self_similarity",
        "words of one sentence, with their mean": "intra_sentence",
        "random occurrences of different words": "anisotropy",
        "occurrences of one word, minus random": "self_similarity_corrected",
    }
    series = []
    for style_index, (name, key) in enumerate(kinds.items()):
        points = [
            Point(layer.layer, getattr(layer, key), f"{name}, layer {layer.layer}: {value:.3f}")
            for layer in results.layers
            for value in [getattr(layer, key)]
        ]
        series.append(Series(name, points, style_index))
    values = [point.y for one in series for point in one.points]
    x_axis = Axis(-0.15, len(results.layers) - 0.85, "layer (0 has no context)", whole=True)
    return line_chart(title, x_axis, axis_for(values, "mean cosine", zero=True), series)


def occurrence_map(result: OccurrenceMap) -> Canvas:
    """Draw the occurrences of a word, coloured by sense if annotated, else by cluster."""
    has_senses = any(occurrence.sense for occurrence in result.uses)
    groups: dict[str, list[MappedOccurrence]] = {}
    for occurrence in result.uses:
        groups.setdefault(
            (occurrence.sense or "") if has_senses else str(occurrence.cluster), []
        ).append(occurrence)
    counted = Counter({name: len(group) for name, group in groups.items() if name})
    largest = [
        name for name, _ in counted.most_common(len(SERIES) - 1 if has_senses else len(SERIES))
    ]
    if len(counted) == len(largest) + 1:  # a single remaining group gets a colour of its own
        largest = [name for name, _ in counted.most_common()]
    series = []
    for style_index, name in enumerate(largest):
        label = describe_sense(name) if has_senses else f"cluster {int(name) + 1}"
        points = [_point(occurrence) for occurrence in groups[name]]
        series.append(Series(f"{label}: {len(points)}", points, style_index))
    rest = [
        occurrence for name, group in groups.items() if name not in largest for occurrence in group
    ]
    if rest:
        label = "other senses" if has_senses else "other clusters"
        series.append(
            Series(f"{label}: {len(rest)}", [_point(occurrence) for occurrence in rest], -1)
        )
    if result.variance is None:
        axes = ("t-SNE, first dimension", "t-SNE, second dimension")
    else:
        axes = component_labels(result.variance)
    kind = "senses" if has_senses else "clusters"
    title = f"{len(result.uses)} uses of “{result.word}”, layer {result.layers}, by {kind}"
    return scatter_plot(title, axes[0], axes[1], series)


def _point(occurrence: MappedOccurrence) -> Point:
    return Point(
        occurrence.x,
        occurrence.y,
        f"{format_occurrence(occurrence)}\n{occurrence.sense or ''}".strip(),
    )


def surprise(title: str, text: ScoredText) -> Canvas:
    """Draw the surprisal of each word in each direction."""
    words = text.tokens[:_MAX_TOKENS]
    series = []
    for style_index, (name, values) in enumerate(
        (("given the words before", text.forward), ("given the words after", text.backward))
    ):
        points = [
            Point(bits(value), row, f"{word}: {bits(value):.2f} bits {name}")
            for row, (word, value) in enumerate(zip(words, values, strict=False))
        ]
        series.append(Series(name, points, style_index))
    every = [point.x for one in series for point in one.points]
    x_axis = axis_for(every, "surprisal (bits)", zero=True)
    names = [word if known else f"{word} ?" for word, known in zip(words, text.known, strict=False)]
    return dot_plot(title, names, x_axis, series, step=22)


def bits(log_probability: float) -> float:
    """Convert a log probability (natural) to surprisal in bits."""
    return -log_probability / math.log(2)
