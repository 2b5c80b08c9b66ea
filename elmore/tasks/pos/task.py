"""Part-of-speech tagging."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float

from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.embedding.network import Widths
from elmore.tasks.metrics import counts
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

    def count(self, example: TaggedSentence, prediction: list[str]) -> tuple[float, ...]:
        """Count the tokens whose tag is right, and all tokens."""
        pairs = zip(example.tags, prediction, strict=True)
        return float(sum(gold == predicted for gold, predicted in pairs)), float(len(prediction))

    def score_counts(self, sums: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
        """Return the accuracy over tokens."""
        return counts.ratio(sums)

    def format_text(self, example: TaggedSentence, prediction: list[str]) -> str:
        """Write each tag after its word."""
        return " ".join(f"{w}/{t}" for w, t in zip(example.tokens, prediction, strict=True))
