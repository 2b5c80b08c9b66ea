"""What commands print with --json, read back: told by the keys, checked to the last number."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmore import config, strict_json
from elmore.errors import ConfigError, DataError
from elmore.probe.context import Context
from elmore.probe.reporting.trained import checked_summary
from elmore.probe.use_map import UseMap
from elmore.tasks.sweep import Summary

KNOWN = "probe pos, probe wsd, probe context, probe uses, neighbors, score, evaluate, task evaluate"


@dataclass(frozen=True)
class Layer:
    """A row of `elmore probe pos`."""

    layer: str
    test: float
    dev: float
    control: float | None = None
    selectivity: float | None = None


@dataclass(frozen=True)
class Senses:
    """What `elmore probe wsd` found: of each test set the scores of each layer."""

    chosen: str | None
    held_out: dict[str, dict[str, float]]
    tests: dict[str, dict[str, dict[str, float]]]
    num_uses: int
    num_senses: int

    def __post_init__(self) -> None:
        for table in (self.held_out, *self.tests.values()):
            for layer, scores in table.items():
                if not {"f1", "f1_low", "f1_high"} <= set(scores):
                    raise ConfigError(f"expected scores with f1 and its interval, found {layer!r}")


@dataclass(frozen=True)
class Neighbor:
    """Another use, and how near it is."""

    word: str
    tokens: tuple[str, ...]
    position: int
    similarity: float
    line: int


@dataclass(frozen=True)
class Neighbors:
    """The uses nearest to one."""

    query: str
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True)
class Likely:
    """The most probable words at one position of a text."""

    position: int
    forward: tuple[tuple[str, float], ...]
    backward: tuple[tuple[str, float], ...]
    both: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Text:
    """A line of `elmore score`."""

    line: int
    tokens: tuple[str, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    known: tuple[bool, ...]
    substitutes: tuple[Likely, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.forward) == len(self.backward) == len(self.known):
            raise ConfigError("as many tokens as numbers of each kind were expected")


@dataclass(frozen=True)
class Perplexities:
    """What `elmore evaluate` measured."""

    forward: float
    backward: float
    perplexity: float
    bits_per_character: float
    tokens: int
    oov: float


Printed = (
    list[Layer] | Senses | Context | UseMap | list[Neighbors] | list[Text] | Perplexities | Summary
)


class _Kind(NamedTuple):
    keys: set[str]
    """By which it is told."""
    cls: type | None
    lines: bool = False
    """Whether it comes as a list, or a line each."""


_KINDS = (
    _Kind({"layers", "steadiest"}, Context),
    _Kind({"word", "uses", "num_clusters"}, UseMap),
    _Kind({"held_out", "tests", "num_senses"}, Senses),
    _Kind({"perplexity", "bits_per_character"}, Perplexities),
    _Kind({"metric", "runs", "summary"}, None),
    _Kind({"query", "neighbors"}, Neighbors, lines=True),
    _Kind({"tokens", "forward", "backward", "known"}, Text, lines=True),
    _Kind({"layer", "test", "dev"}, Layer, lines=True),
)


def read(path: Path) -> Printed:
    """Read a file that a command's --json was sent to."""
    rows = _rows(path)
    for kind in _KINDS:
        if all(isinstance(row, dict) and kind.keys <= row.keys() for row in rows):
            if kind.cls is Text:
                _rename_positions(rows)
            if kind.lines:
                return [_built(kind.cls, row, f"{path}: {n}") for n, row in enumerate(rows, 1)]
            if len(rows) == 1:
                if kind.cls is None:
                    return checked_summary(rows[0], str(path))
                return _built(kind.cls, rows[0], str(path))
    raise DataError(
        f"{path}: not recognised; expected what one of these printed with --json: {KNOWN}"
    )


def _rename_positions(rows: list[Any]) -> None:
    """Rename `place`, as earlier versions of `elmore score` called a position."""
    for row in rows:
        listed = row.get("substitutes")
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict) and "place" in one:
                one["position"] = one.pop("place")


def _rows(path: Path) -> list[Any]:
    """Give the items of a list, the lines of JSON, or the one object."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    for parsed in (_whole, _lines):
        try:
            rows = parsed(text)
        except ValueError:
            continue
        if rows:
            return rows
    raise DataError(
        f"{path}: expected what a command printed with --json, found neither JSON nor lines of it"
    )


def _whole(text: str) -> list[Any]:
    data = strict_json.loads(text)
    return data if isinstance(data, list) else [data]


def _lines(text: str) -> list[Any]:
    return [strict_json.loads(line) for line in text.splitlines() if line.strip()]


def _built(cls: Any, row: dict[str, Any], where: str) -> Any:  # noqa: ANN401 -- one of ours
    """Make it strictly, but for keys that a later version may add."""
    try:
        return config.build(cls, row, where, unknown="ignore")
    except ConfigError as error:
        raise DataError(str(error)) from error
