"""Scores of several runs: their means, and how far they lie from these."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

FORMAT = 1
Summary = dict[str, Any]
"""As JSON: `metric`, every one of the `runs`, and a `summary` of each fraction, or of them all."""


class Scored(NamedTuple):
    """One run, scored."""

    run: str
    metric: str
    """The score that counts."""
    fraction: float | None
    examples: int | None
    """How many that is."""
    seed: int
    scores: dict[str, dict[str, float]]
    """Of each split."""


def summary(runs: Sequence[Scored]) -> Summary:
    """Put runs together, those of one fraction to one line."""
    fractions = dict.fromkeys(run.fraction for run in runs)
    return {
        "format": FORMAT,
        "metric": runs[0].metric,
        "runs": [_row(one, run=one.run, seed=one.seed, scores=one.scores) for one in runs],
        "summary": [_together([r for r in runs if r.fraction == f]) for f in fractions],
    }


def _together(runs: Sequence[Scored]) -> dict[str, Any]:
    splits = runs[0].scores
    scores = {split: mean_and_deviation([run.scores[split] for run in runs]) for split in splits}
    return _row(runs[0], num_runs=len(runs), scores=scores)


def _row(one: Scored, **more: object) -> dict[str, Any]:
    """Say of which fraction something is, where there are any."""
    if one.fraction is None:
        return more
    return {"fraction": one.fraction, "examples": one.examples, **more}


def mean_and_deviation(
    scores: Sequence[dict[str, float]],
) -> dict[str, dict[str, float | None]]:
    """Give mean and sample deviation of each score that all runs have; of one run, no deviation."""
    found: dict[str, dict[str, float | None]] = {}
    for name in scores[0]:
        if all(name in some for some in scores):
            values = [some[name] for some in scores]
            deviation = statistics.stdev(values) if len(values) > 1 else None
            found[name] = {"mean": statistics.fmean(values), "deviation": deviation}
    return found


def shown(score: dict[str, float | None]) -> str:
    """Write a mean and its deviation for a person."""
    deviation = score["deviation"]
    return f"{score['mean']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")
