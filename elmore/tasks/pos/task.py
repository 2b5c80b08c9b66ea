"""Part-of-speech tagging."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.embedding.network import Widths
from elmore.tasks.pos import data, metric
from elmore.tasks.pos.model import POSHead
from elmore.tasks.tagging import TaggerConfig, TaggingTask
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True, kw_only=True)
class POSData:
    """Which tags to read."""

    column: data.Column = "xpos"
    """Tags of the language's own treebank, universal tags, or features."""


@dataclass(frozen=True, kw_only=True)
class POSConfig(TaskConfig):
    """The recipe for parts of speech."""

    data: POSData = field(default_factory=POSData)
    model: TaggerConfig = field(default_factory=TaggerConfig)


class POS(TaggingTask):
    """Tag the words of a sentence."""

    name = "pos"
    metric = "accuracy"
    config_class = POSConfig

    config: POSConfig

    def read_examples(self, path: Path) -> list[TaggedSentence]:
        """Read a CoNLL-U file."""
        return data.read_conllu(path, column=self.config.data.column)

    def build_head(self, widths: Widths, labels: list[str]) -> POSHead:
        """Build the biLSTM."""
        return POSHead(self.config.model, widths, labels)

    def score(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[list[str]]
    ) -> dict[str, float]:
        """Return the accuracy over tokens."""
        return metric.score([example.tags for example in examples], predictions)

    def format_text(self, example: TaggedSentence, prediction: list[str]) -> str:
        """Write each tag after its word."""
        return " ".join(f"{w}/{t}" for w, t in zip(example.tokens, prediction, strict=True))
