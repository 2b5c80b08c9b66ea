"""Parts of speech: noun, verb, … for each word."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmore.tasks.data.columns import Tagged
from elmore.tasks.embedding.network import Widths
from elmore.tasks.pos import data, metric
from elmore.tasks.pos.model import POSModel
from elmore.tasks.tagging import TaggerConfig, Tagging
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True, kw_only=True)
class POSData:
    """Which tags to read."""

    column: data.Column = "xpos"
    """Those of the language's own treebank, the universal ones, or the features."""


@dataclass(frozen=True, kw_only=True)
class POSConfig(TaskConfig):
    """A recipe for parts of speech."""

    data: POSData = field(default_factory=POSData)
    model: TaggerConfig = field(default_factory=TaggerConfig)


class POS(Tagging):
    """Tag the words of a sentence."""

    name = "pos"
    metric = "accuracy"
    config_class = POSConfig

    config: POSConfig

    def read(self, path: Path) -> list[Tagged]:
        """Read a CoNLL-U file."""
        return data.read(path, column=self.config.data.column)

    def model(self, widths: Widths, labels: list[str]) -> POSModel:
        """Build the tagger."""
        return POSModel(self.config.model, widths, labels)

    def score(
        self, examples: Sequence[Tagged], predictions: Sequence[list[str]]
    ) -> dict[str, float]:
        """Count tokens that are right."""
        return metric.score([example.tags for example in examples], predictions)

    def show(self, example: Tagged, prediction: list[str]) -> str:
        """Write each tag behind its word."""
        return " ".join(f"{w}/{t}" for w, t in zip(example.tokens, prediction, strict=True))
