"""Sentiment: how much a sentence likes what it speaks of."""

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
    """What of the trees to learn."""

    classes: Literal[5, 2] = 5
    """Two: negative and positive, without what is neutral."""
    phrases: bool = False
    """Train on every phrase that has a label, not on sentences alone."""


@dataclass(frozen=True, kw_only=True)
class SSTConfig(TaskConfig):
    """A recipe for sentiment."""

    data: SSTData = field(default_factory=SSTData)
    model: BCNConfig = field(default_factory=BCNConfig)


class SST(ClassificationTask):
    """Rate a sentence."""

    name = "sst"
    config_class = SSTConfig

    config: SSTConfig

    def read_examples(self, path: Path) -> list[SentimentExample]:
        """Read the sentences of a file of trees."""
        return data.read_trees(path, classes=self.config.data.classes)

    def training_examples(self, examples: list[SentimentExample]) -> list[SentimentExample]:
        """Add the phrases, where the recipe wants them."""
        return data.add_phrases(examples) if self.config.data.phrases else examples

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a text into tokens; those of the treebank are read as its trees are."""
        tokens = super().tokenize(text, tokenized=tokenized)
        return [data.unescape_token(token) for token in tokens] if tokenized else tokens

    def example_from_text(self, text: str, *, tokenized: bool = False) -> SentimentExample:
        """Make an example without a label."""
        return SentimentExample("", self.tokenize(text, tokenized=tokenized))

    def sentences(self, example: SentimentExample) -> list[list[str]]:
        """Return the one sentence there is."""
        return [example.tokens]

    def collect_labels(self, examples: Sequence[LabeledExample]) -> list[str]:
        """Return all there are, from the most negative on."""
        return list(data.CLASSES[self.config.data.classes])

    def build_head(self, widths: Widths, labels: list[str]) -> BCN:
        """Build the network."""
        return BCN(self.config.model, widths, labels)

    def format_text(self, example: SentimentExample, prediction: str) -> str:
        """Write the label before the sentence."""
        return f"{prediction}\t{' '.join(example.tokens)}"

    def to_dict(self, example: SentimentExample, prediction: str) -> dict[str, Any]:
        """Return tokens and label, in words and as the number that the treebank has for it."""
        number = data.CLASSES[self.config.data.classes].index(prediction)
        return {"tokens": example.tokens, "label": prediction, "number": number}
