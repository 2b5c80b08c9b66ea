"""Entailment: whether a sentence follows from another, contradicts it, or neither."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmore.errors import DataError
from elmore.tasks.classification import Classification
from elmore.tasks.embedding.network import Widths
from elmore.tasks.snli import data
from elmore.tasks.snli.data import Pair
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


class SNLI(Classification):
    """Label a pair of sentences."""

    name = "snli"
    config_class = SNLIConfig

    config: SNLIConfig

    def read(self, path: Path) -> list[Pair]:
        """Read a table of pairs."""
        return data.read(path, labels=self.config.data.labels, tokenize=self.tokenize)

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a sentence into tokens, of a file or typed; `data.tokenized` says of both."""
        if tokenized or self.config.data.tokenized:
            return text.split()
        return data.words(text)

    def example(self, text: str, *, tokenized: bool = False) -> Pair:
        """Make an example without a label of two sentences with a tab between them."""
        parts = text.split("\t")
        if len(parts) != 2:
            raise DataError(
                "expected a premise and a hypothesis with a tab between them, found "
                f"{len(parts) - 1} tabs in {text[:40]!r}"
            )
        premise, hypothesis = (self.tokenize(part, tokenized=tokenized) for part in parts)
        return Pair("", premise, hypothesis)

    def sentences(self, example: Pair) -> list[list[str]]:
        """Give premise and hypothesis."""
        return [example.premise, example.hypothesis]

    def model(self, widths: Widths, labels: list[str]) -> ESIM:
        """Build the network."""
        return ESIM(self.config.model, widths, labels)

    def show(self, example: Pair, prediction: str) -> str:
        """Write the label before the two sentences."""
        return "\t".join([prediction, " ".join(example.premise), " ".join(example.hypothesis)])

    def as_json(self, example: Pair, prediction: str) -> dict[str, Any]:
        """Give all three under the names of SNLI, so that `read` reads it again."""
        premise, hypothesis = " ".join(example.premise), " ".join(example.hypothesis)
        return {"gold_label": prediction, "sentence1": premise, "sentence2": hypothesis}
