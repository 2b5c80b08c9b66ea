"""What a task got right and wrong on a file of examples: `test.json` of a run folder."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmore import atomic, config, strict_json
from elmore.errors import ConfigError
from elmore.tasks.task import Task

FORMAT = 1
TEST_RESULTS = "test.json"
"""The scores and errors on the test examples, in a run folder."""
_MAX_ERRORS = 100
_MAX_TEXT = 300  # characters of an example


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """How often a gold label was predicted as another, or as itself."""

    gold: str
    predicted: str
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"count must be at least 1, found {self.count}")


@dataclass(frozen=True, kw_only=True)
class WrongDecision:
    """An example, or a token in its sentence, with the wrong label."""

    text: str
    gold: str
    predicted: str


@dataclass(frozen=True, kw_only=True)
class Results:
    """Scores, and for tasks with labels which were confused and the first errors."""

    format: int = FORMAT
    task: str
    metric: str
    scores: dict[str, float]
    confusion: tuple[Confusion, ...] = ()
    errors: tuple[WrongDecision, ...] = ()


class LabelScores(NamedTuple):
    """Precision, recall and F1 of a label in percent, and how often it is the gold label."""

    precision: float
    recall: float
    f1: float
    count: int


def collect(
    task: Task, scores: dict[str, float], examples: Sequence[Any], predictions: Sequence[Any]
) -> Results:
    """Return the results of a task on examples."""
    pairs: Counter[tuple[str, str]] = Counter()
    errors: list[WrongDecision] = []
    for example, prediction in zip(examples, predictions, strict=True):
        for gold, predicted, text in task.decisions(example, prediction):
            pairs[gold, predicted] += 1
            if gold != predicted and len(errors) < _MAX_ERRORS:
                errors.append(WrongDecision(text=text[:_MAX_TEXT], gold=gold, predicted=predicted))
    confusion = tuple(
        Confusion(gold=gold, predicted=predicted, count=count)
        for (gold, predicted), count in sorted(pairs.items())
    )
    return Results(
        task=task.name,
        metric=task.metric,
        scores=scores,
        confusion=confusion,
        errors=tuple(errors),
    )


def label_scores(confusion: Iterable[Confusion]) -> dict[str, LabelScores]:
    """Return the scores of each label, frequent ones first."""
    gold, predicted, right = Counter[str](), Counter[str](), Counter[str]()
    for one in confusion:
        gold[one.gold] += one.count
        predicted[one.predicted] += one.count
        right[one.gold] += one.count if one.gold == one.predicted else 0
    scores = {}
    for label, count in gold.most_common():
        precision = 100 * right[label] / max(1, predicted[label])
        recall = 100 * right[label] / count
        f1 = 2 * precision * recall / (precision + recall) if right[label] else 0.0
        scores[label] = LabelScores(precision, recall, f1, count)
    return scores


def write(path: Path, results: Results) -> None:
    """Write results as JSON."""
    atomic.write(path, strict_json.encode(asdict(results), indent=1))


def read(path: Path) -> Results:
    """Read what `write` wrote.

    Raises:
        ConfigError: the file is damaged, or of a later version.
    """
    data: Mapping[str, Any] = config.read_json(path)
    config.check_format(dict(data), FORMAT, str(path))
    return config.build(Results, dict(data), str(path))
