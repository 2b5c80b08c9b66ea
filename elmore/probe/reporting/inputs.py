"""The inputs of a report: run folders and printed results, sorted by kind."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from elmore.errors import DataError
from elmore.probe.context import Contextuality
from elmore.probe.linear_probe import LayerScores
from elmore.probe.occurrence_map import OccurrenceMap
from elmore.probe.reporting import load_results, load_runs
from elmore.probe.reporting.load_results import NeighborQuery, Perplexity, ScoredText
from elmore.probe.reporting.load_runs import Sweep, TrainingRun
from elmore.probe.senses import SenseResults
from elmore.tasks.sweep import Summary

Kind = TypeVar("Kind")
KindByName = dict[str, Kind]
"""Inputs by the name of their file or folder."""


@dataclass(frozen=True)
class ReportInputs:
    """Everything that a report shows."""

    runs: list[TrainingRun] = field(default_factory=list)
    sweeps: KindByName[Sweep] = field(default_factory=dict)
    summaries: KindByName[Summary] = field(default_factory=dict)
    perplexities: KindByName[Perplexity] = field(default_factory=dict)
    parts_of_speech: KindByName[list[LayerScores]] = field(default_factory=dict)
    senses: KindByName[SenseResults] = field(default_factory=dict)
    contexts: KindByName[Contextuality] = field(default_factory=dict)
    maps: KindByName[OccurrenceMap] = field(default_factory=dict)
    neighbors: KindByName[list[NeighborQuery]] = field(default_factory=dict)
    texts: KindByName[list[ScoredText]] = field(default_factory=dict)

    @property
    def language_models(self) -> list[TrainingRun]:
        """Runs of language models."""
        return [run for run in self.runs if run.task is None]

    @property
    def task_runs(self) -> list[TrainingRun]:
        """Runs of tasks, including those of sweeps."""
        alone = [run for run in self.runs if run.task is not None]
        return alone + [run for sweep in self.sweeps.values() for run in sweep.runs]


def load_inputs(sources: Sequence[Path]) -> ReportInputs:
    """Load run folders and printed results; anything else is an error."""
    inputs = ReportInputs()
    for source, name in zip(sources, short_names(sources), strict=True):
        if not source.exists():
            raise DataError(f"{source}: no such file or folder")
        if source.is_dir():
            loaded = load_runs.load_run_folder(source, name)
            if isinstance(loaded, Sweep):
                inputs.sweeps[name] = loaded
            else:
                inputs.runs.extend(loaded)
        else:
            result = load_results.load_result(source)
            _group_of(result, inputs)[name] = result
    return inputs


def _group_of(result: Any, inputs: ReportInputs) -> dict[str, Any]:  # noqa: ANN401 -- any kind
    """Return the group of inputs that a printed result belongs to."""
    groups: dict[type, dict[str, Any]] = {
        Contextuality: inputs.contexts,
        OccurrenceMap: inputs.maps,
        SenseResults: inputs.senses,
        Perplexity: inputs.perplexities,
        dict: inputs.summaries,
        LayerScores: inputs.parts_of_speech,
        NeighborQuery: inputs.neighbors,
        ScoredText: inputs.texts,
    }
    return groups[type(result[0] if isinstance(result, list) else result)]


def short_names(sources: Sequence[Path]) -> list[str]:
    """Name each source by the shortest end of its path that is unique."""
    paths = [path.absolute() for path in sources]
    for path in paths:
        if paths.count(path) > 1:
            raise DataError(f"{path} is named twice; name it once")
    names: list[str] = []
    for number in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = ["/".join(path.parts[-number:]) for path in paths]
        for candidates in ([name.removesuffix(".json") for name in names], names):
            if len(set(candidates)) == len(candidates):
                return candidates
    return names
