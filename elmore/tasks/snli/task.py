"""Entailment: whether a sentence follows from another, contradicts it, or neither."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmore.errors import DataError
from elmore.tasks.classification import ClassificationTask
from elmore.tasks.embedding.network import Widths
from elmore.tasks.snli import data
from elmore.tasks.snli.data import SentencePair
from elmore.tasks.snli.model import ESIM, ESIMConfig
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True, kw_only=True)
class SNLIData:
    """How to read pairs."""

    labels: tuple[str, ...] = data.LABELS
    """What may stand in a file, in lower case; the model gets those of the training examples."""
    tokenized: bool = False
    """Words are set apart by spaces already, in files and in what is predicted for."""


@dataclass(frozen=True, kw_only=True)
class SNLIConfig(TaskConfig):
    """A recipe for entailment."""

    data: SNLIData = field(default_factory=SNLIData)
    model: ESIMConfig = field(default_factory=ESIMConfig)


class SNLI(ClassificationTask):
    """Label a pair of sentences."""

    name = "snli"
    config_class = SNLIConfig

    config: SNLIConfig

    def read_examples(self, path: Path) -> list[SentencePair]:
        """Read a table of pairs."""
        return data.read_pairs(path, labels=self.config.data.labels, tokenize=self.tokenize)

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a sentence into tokens, of a file or typed; `data.tokenized` says of both."""
        if tokenized or self.config.data.tokenized:
            return text.split()
        return data.words(text)

    def example_from_text(self, text: str, *, tokenized: bool = False) -> SentencePair:
        """Make an example without a label of two sentences with a tab between them."""
        parts = text.split("\t")
        if len(parts) != 2:
            raise DataError(
                "expected a premise and a hypothesis with a tab between them, found "
                f"{len(parts) - 1} tabs in {text[:40]!r}"
            )
        premise, hypothesis = (self.tokenize(part, tokenized=tokenized) for part in parts)
        return SentencePair("", premise, hypothesis)

    def sentences(self, example: SentencePair) -> list[list[str]]:
        """Return premise and hypothesis."""
        return [example.premise, example.hypothesis]

    def build_head(self, widths: Widths, labels: list[str]) -> ESIM:
        """Build the network."""
        return ESIM(self.config.model, widths, labels)

    def format_text(self, example: SentencePair, prediction: str) -> str:
        """Write the label before the two sentences."""
        return "\t".join([prediction, " ".join(example.premise), " ".join(example.hypothesis)])

    def to_dict(self, example: SentencePair, prediction: str) -> dict[str, Any]:
        """Return all three under the names of SNLI, so that `read` reads it again."""
        premise, hypothesis = " ".join(example.premise), " ".join(example.hypothesis)
        return {"gold_label": prediction, "sentence1": premise, "sentence2": hypothesis}
