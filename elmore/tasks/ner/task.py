"""Named entities: names of persons, places, works … and which words they are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmore.errors import ConfigError
from elmore.tasks.data.columns import Tagged
from elmore.tasks.embedding.network import Widths
from elmore.tasks.metrics.bio import spans
from elmore.tasks.ner import data, metric
from elmore.tasks.ner.model import NERModel
from elmore.tasks.tagging import TaggerConfig, Tagging
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True, kw_only=True)
class NERData:
    """Which columns to read."""

    column: int = -1
    """Of the tags, from 0, or from the end."""
    encoding: str = "utf-8"
    """Of the files; those of CoNLL-2002 are in latin-1."""

    def __post_init__(self) -> None:
        try:
            b"a".decode(self.encoding)
        except (LookupError, ValueError) as error:
            raise ConfigError(
                f"data.encoding: expected a name such as utf-8 or latin-1, found {self.encoding!r}"
            ) from error


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
    closed_labels = True

    config: NERConfig

    def read(self, path: Path) -> list[Tagged]:
        """Read a file of columns."""
        settings = self.config.data
        return data.read(path, column=settings.column, encoding=settings.encoding)

    def labels(self, examples: Sequence[Tagged]) -> list[str]:
        """Give O, and both tags of every type of the training examples: a name may always go on."""
        kinds = {tag.partition("-")[2] for tag in super().labels(examples) if tag != "O"}
        return sorted({"O", *(f"{letter}-{kind}" for letter in "BI" for kind in kinds)})

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
        for first, after, kind in spans(prediction):
            words[first] = f"[{words[first]}"
            words[after - 1] += f" {kind.upper()}]"
        return " ".join(words)
