"""Load what commands print with --json; the kind is recognized by its keys."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmore import config, strict_json
from elmore.errors import ConfigError, DataError
from elmore.probe.context import Contextuality
from elmore.probe.linear_probe import LayerScores
from elmore.probe.occurrence_map import OccurrenceMap
from elmore.probe.reporting.load_runs import check_summary
from elmore.probe.senses import SenseResults
from elmore.tasks.sweep import Summary

KNOWN = "probe pos, probe wsd, probe context, probe uses, neighbors, score, evaluate, task evaluate"


@dataclass(frozen=True)
class Neighbor:
    """An occurrence, and its similarity to the query."""

    word: str
    tokens: tuple[str, ...]
    position: int
    similarity: float
    line: int


@dataclass(frozen=True)
class NeighborQuery:
    """A query and its nearest occurrences."""

    query: str
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True)
class Substitutes:
    """The most probable words at one position of a text."""

    position: int
    forward: tuple[tuple[str, float], ...]
    backward: tuple[tuple[str, float], ...]
    both: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class ScoredText:
    """A line of `elmore score`."""

    line: int
    tokens: tuple[str, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    known: tuple[bool, ...]
    substitutes: tuple[Substitutes, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.forward) == len(self.backward) == len(self.known):
            raise ConfigError("expected as many forward, backward and known values as tokens")


@dataclass(frozen=True)
class Perplexity:
    """The result of `elmore evaluate`."""

    forward: float
    backward: float
    perplexity: float
    bits_per_character: float
    tokens: int
    oov: float


Result = (
    list[LayerScores]
    | SenseResults
    | Contextuality
    | OccurrenceMap
    | list[NeighborQuery]
    | list[ScoredText]
    | Perplexity
    | Summary
)


class _Kind(NamedTuple):
    keys: set[str]
    """Keys that every result of this kind has."""
    cls: type | None
    lines: bool = False
    """Whether it is a list, or one JSON object per line."""


_KINDS = (
    _Kind({"layers", "steadiest"}, Contextuality),
    _Kind({"word", "uses", "num_clusters"}, OccurrenceMap),
    _Kind({"held_out", "tests", "num_senses"}, SenseResults),
    _Kind({"perplexity", "bits_per_character"}, Perplexity),
    _Kind({"metric", "runs", "summary"}, None),
    _Kind({"query", "neighbors"}, NeighborQuery, lines=True),
    _Kind({"tokens", "forward", "backward", "known"}, ScoredText, lines=True),
    _Kind({"layer", "test", "dev"}, LayerScores, lines=True),
)


_OLD_KEYS = {"least": "min_uses", "place": "position"}
"""Keys that were renamed since version 1."""


def load_result(path: Path) -> Result:
    """Load a file with the --json output of a command."""
    rows = _read_rows(path)
    for kind in _KINDS:
        if all(isinstance(row, dict) and kind.keys <= row.keys() for row in rows):
            if kind.lines:
                return [_build(kind.cls, row, f"{path}: {n}") for n, row in enumerate(rows, 1)]
            if len(rows) == 1:
                if kind.cls is None:
                    return check_summary(rows[0], str(path))
                return _build(kind.cls, rows[0], str(path))
    raise DataError(f"{path}: not recognised; expected the --json output of one of: {KNOWN}")


def _rename_keys(value: Any) -> Any:  # noqa: ANN401 -- any JSON
    """Rename the keys of earlier versions, at every depth."""
    if isinstance(value, dict):
        return {_OLD_KEYS.get(key, key): _rename_keys(one) for key, one in value.items()}
    return [_rename_keys(one) for one in value] if isinstance(value, list) else value


def _read_rows(path: Path) -> list[Any]:
    """Return the items of a list, the lines of a JSON Lines file, or the single object."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    for parse in (_parse_json, _parse_lines):
        try:
            rows = parse(text)
        except ValueError:
            continue
        if rows:
            return rows
    raise DataError(
        f"{path}: expected the --json output of a command, found neither JSON nor JSON Lines"
    )


def _parse_json(text: str) -> list[Any]:
    data = strict_json.loads(text)
    return data if isinstance(data, list) else [data]


def _parse_lines(text: str) -> list[Any]:
    return [strict_json.loads(line) for line in text.splitlines() if line.strip()]


def _build(cls: Any, row: dict[str, Any], where: str) -> Any:  # noqa: ANN401 -- one of the kinds above
    """Build a result with strict types; unknown keys of later versions are ignored."""
    try:
        return config.build(cls, _rename_keys(row), where, unknown="ignore")
    except ConfigError as error:
        raise DataError(str(error)) from error
