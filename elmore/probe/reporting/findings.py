"""All that a report is of: run folders and printed results, sorted by what they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from elmore.errors import DataError
from elmore.probe.context import Context
from elmore.probe.reporting import printed, trained
from elmore.probe.reporting.printed import Layer, Neighbors, Perplexities, Senses, Text
from elmore.probe.reporting.trained import Several, Trained
from elmore.probe.use_map import UseMap
from elmore.tasks.sweep import Summary

Kind = TypeVar("Kind")
Named = dict[str, Kind]
"""By the name of the file or folder it came from."""


@dataclass(frozen=True)
class Findings:
    """What there is to show."""

    runs: list[Trained] = field(default_factory=list)
    several: Named[Several] = field(default_factory=dict)
    summaries: Named[Summary] = field(default_factory=dict)
    perplexities: Named[Perplexities] = field(default_factory=dict)
    parts_of_speech: Named[list[Layer]] = field(default_factory=dict)
    senses: Named[Senses] = field(default_factory=dict)
    contexts: Named[Context] = field(default_factory=dict)
    maps: Named[UseMap] = field(default_factory=dict)
    neighbors: Named[list[Neighbors]] = field(default_factory=dict)
    texts: Named[list[Text]] = field(default_factory=dict)

    @property
    def language_models(self) -> list[Trained]:
        """The runs that learned a language."""
        return [run for run in self.runs if run.task is None]

    @property
    def task_runs(self) -> list[Trained]:
        """The runs that learned a task, those of several too."""
        alone = [run for run in self.runs if run.task is not None]
        return alone + [run for many in self.several.values() for run in many.runs]


def gather(sources: Sequence[Path]) -> Findings:
    """Read everything; what is none of it is refused by its name."""
    found = Findings()
    for source, name in zip(sources, names(sources), strict=True):
        if not source.exists():
            raise DataError(f"{source}: no such file or folder")
        if source.is_dir():
            read = trained.read(source, name)
            if isinstance(read, Several):
                found.several[name] = read
            else:
                found.runs.extend(read)
        else:
            result = printed.read(source)
            _shelf(found, result)[name] = result
    return found


def _shelf(found: Findings, read: Any) -> dict[str, Any]:  # noqa: ANN401 -- any of the kinds
    """Say where something printed belongs."""
    shelves: dict[type, dict[str, Any]] = {
        Context: found.contexts,
        UseMap: found.maps,
        Senses: found.senses,
        Perplexities: found.perplexities,
        dict: found.summaries,
        Layer: found.parts_of_speech,
        Neighbors: found.neighbors,
        Text: found.texts,
    }
    return shelves[type(read[0] if isinstance(read, list) else read)]


def names(sources: Sequence[Path]) -> list[str]:
    """Call each by the end of its path, as much of it as tells it from the others."""
    paths = [path.absolute() for path in sources]
    for path in paths:
        if paths.count(path) > 1:
            raise DataError(f"{path} is named twice; name it once")
    found: list[str] = []
    for number in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        found = ["/".join(path.parts[-number:]) for path in paths]
        for called in ([name.removesuffix(".json") for name in found], found):
            if len(set(called)) == len(called):
                return called
    return found
