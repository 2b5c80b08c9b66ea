"""Natural language inference: entailment, contradiction or neutral."""

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
    """The format of the files."""

    labels: tuple[str, ...] = data.LABELS
    """Labels that may occur in a file, in lower case."""
    tokenized: bool = False
    """Tokens are separated by spaces already, in files and in prediction."""


@dataclass(frozen=True, kw_only=True)
class SNLIConfig(TaskConfig):
    """The recipe for natural language inference."""

    data: SNLIData = field(default_factory=SNLIData)
    model: ESIMConfig = field(default_factory=ESIMConfig)


class SNLI(ClassificationTask):
    """Classify a pair of sentences."""

    name = "snli"
    config_class = SNLIConfig

    config: SNLIConfig

    def read_examples(self, path: Path) -> list[SentencePair]:
        """Read a table of pairs."""
        return data.read_pairs(path, labels=self.config.data.labels, tokenize=self.tokenize)

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a sentence into tokens; `data.tokenized` holds for files and prediction."""
        if tokenized or self.config.data.tokenized:
            return text.split()
        return data.tokenize_pair_text(text)

    def example_from_text(self, text: str, *, tokenized: bool = False) -> SentencePair:
        """Return an example without a label, from two sentences separated by a tab."""
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
        """Return label and sentences under the names of SNLI."""
        premise, hypothesis = " ".join(example.premise), " ".join(example.hypothesis)
        return {"gold_label": prediction, "sentence1": premise, "sentence2": hypothesis}
