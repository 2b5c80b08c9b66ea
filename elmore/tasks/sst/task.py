"""Sentiment: how much a sentence likes what it speaks of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from elmore.tasks.classification import Classification, Labelled
from elmore.tasks.embedding.network import Widths
from elmore.tasks.sst import data
from elmore.tasks.sst.data import Rated
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


class SST(Classification):
    """Rate a sentence."""

    name = "sst"
    config_class = SSTConfig

    config: SSTConfig

    def read(self, path: Path) -> list[Rated]:
        """Read the sentences of a file of trees."""
        return data.read(path, classes=self.config.data.classes)

    def training(self, examples: list[Rated]) -> list[Rated]:
        """Add the phrases, where the recipe wants them."""
        return data.with_phrases(examples) if self.config.data.phrases else examples

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a text into tokens; those of the treebank are read as its trees are."""
        tokens = super().tokenize(text, tokenized=tokenized)
        return [data.unescape(token) for token in tokens] if tokenized else tokens

    def example(self, text: str, *, tokenized: bool = False) -> Rated:
        """Make an example without a label."""
        return Rated("", self.tokenize(text, tokenized=tokenized))

    def sentences(self, example: Rated) -> list[list[str]]:
        """Give the one sentence there is."""
        return [example.tokens]

    def labels(self, examples: Sequence[Labelled]) -> list[str]:
        """Give all there are, from the most negative on."""
        return list(data.CLASSES[self.config.data.classes])

    def model(self, widths: Widths, labels: list[str]) -> BCN:
        """Build the network."""
        return BCN(self.config.model, widths, labels)

    def show(self, example: Rated, prediction: str) -> str:
        """Write the label before the sentence."""
        return f"{prediction}\t{' '.join(example.tokens)}"

    def as_json(self, example: Rated, prediction: str) -> dict[str, Any]:
        """Give tokens and label, in words and as the number that the treebank has for it."""
        number = data.CLASSES[self.config.data.classes].index(prediction)
        return {"tokens": example.tokens, "label": prediction, "number": number}
