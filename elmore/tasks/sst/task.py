"""Sentiment: how positive a sentence is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from elmore.tasks.classification import ClassificationTask, LabeledExample
from elmore.tasks.embedding.network import Widths
from elmore.tasks.sst import data
from elmore.tasks.sst.data import SentimentExample
from elmore.tasks.sst.model import BCN, BCNConfig
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True, kw_only=True)
class SSTData:
    """What to read from the trees."""

    classes: Literal[5, 2] = 5
    """5, or 2: negative and positive, without neutral sentences."""
    phrases: bool = False
    """Also train on the labelled phrases of each sentence."""


@dataclass(frozen=True, kw_only=True)
class SSTConfig(TaskConfig):
    """The recipe for sentiment."""

    data: SSTData = field(default_factory=SSTData)
    model: BCNConfig = field(default_factory=BCNConfig)


class SST(ClassificationTask):
    """Classify the sentiment of a sentence."""

    name = "sst"
    config_class = SSTConfig

    config: SSTConfig

    def read_examples(self, path: Path) -> list[SentimentExample]:
        """Read the sentences of a file of trees."""
        return data.read_trees(path, classes=self.config.data.classes)

    def training_examples(self, examples: list[SentimentExample]) -> list[SentimentExample]:
        """Add the phrases if the recipe asks for them."""
        return data.add_phrases(examples) if self.config.data.phrases else examples

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a text into tokens; escapes of the treebank are undone if it is tokenized."""
        tokens = super().tokenize(text, tokenized=tokenized)
        return [data.unescape_token(token) for token in tokens] if tokenized else tokens

    def example_from_text(self, text: str, *, tokenized: bool = False) -> SentimentExample:
        """Return an example without a label."""
        return SentimentExample("", self.tokenize(text, tokenized=tokenized))

    def sentences(self, example: SentimentExample) -> list[list[str]]:
        """Return its one sentence."""
        return [example.tokens]

    def collect_labels(self, examples: Sequence[LabeledExample]) -> list[str]:
        """Return all classes, the most negative first."""
        return list(data.CLASSES[self.config.data.classes])

    def build_head(self, widths: Widths, labels: list[str]) -> BCN:
        """Build the network."""
        return BCN(self.config.model, widths, labels)

    def format_text(self, example: SentimentExample, prediction: str) -> str:
        """Write the label before the sentence."""
        return f"{prediction}\t{' '.join(example.tokens)}"

    def to_dict(self, example: SentimentExample, prediction: str) -> dict[str, Any]:
        """Return tokens and label, as a name and as the treebank's number."""
        number = data.CLASSES[self.config.data.classes].index(prediction)
        return {"tokens": example.tokens, "label": prediction, "number": number}
