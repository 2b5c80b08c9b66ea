"""Named entities: names of persons, places, works … and which words they are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmore.tasks.embedding import Widths
from elmore.tasks.ner import data, metric
from elmore.tasks.ner.model import NERModel
from elmore.tasks.tagged import Tagged
from elmore.tasks.tagging import TaggerConfig, Tagging
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True, kw_only=True)
class NERData:
    """Which columns to read."""

    column: int = -1
    """Of the tags, from 0, or from the end."""


@dataclass(frozen=True, kw_only=True)
class NERConfig(TaskConfig):
    """A recipe for names."""

    data: NERData = field(default_factory=NERData)
    model: TaggerConfig = field(default_factory=TaggerConfig)


class NER(Tagging):
    """Find the names in a sentence."""

    name = "ner"
    metric = "f1"
    config_class = NERConfig

    config: NERConfig

    def read(self, path: Path) -> list[Tagged]:
        """Read a file of columns."""
        return data.read(path, column=self.config.data.column)

    def labels(self, examples: Sequence[Tagged]) -> list[str]:
        """Give every tag of the training examples, and O even where all is names."""
        return sorted({"O", *super().labels(examples)})

    def model(self, widths: Widths, labels: list[str]) -> NERModel:
        """Build the tagger."""
        return NERModel(self.config.model, widths, labels)

    def score(
        self, examples: Sequence[Tagged], predictions: Sequence[list[str]]
    ) -> dict[str, float]:
        """Count names that are right in type and extent."""
        return metric.score([example.tags for example in examples], predictions)

    def show(self, example: Tagged, prediction: list[str]) -> str:
        """Put names in brackets, with their types."""
        words = list(example.tokens)
        for first, after, kind in data.spans(prediction):
            words[first] = f"[{words[first]}"
            words[after - 1] += f" {kind.upper()}]"
        return " ".join(words)


TASK = NER
