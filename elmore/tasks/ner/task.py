"""Named entity recognition: the names in a sentence, with their types."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float

from elmore.errors import ConfigError
from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.embedding.network import Widths
from elmore.tasks.metrics import counts
from elmore.tasks.metrics.bio import extract_spans
from elmore.tasks.ner import data, metric
from elmore.tasks.ner.model import NERHead
from elmore.tasks.tagging import TaggerConfig, TaggingTask
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True, kw_only=True)
class NERData:
    """The format of the files."""

    column: int = -1
    """Column of the tags, counted from 0, or from the end."""
    encoding: str = "utf-8"
    """Encoding of the files; those of CoNLL-2002 are in latin-1."""

    def __post_init__(self) -> None:
        try:
            b"a".decode(self.encoding)
        except (LookupError, ValueError) as error:
            raise ConfigError(
                f"data.encoding: expected a name such as utf-8 or latin-1, found {self.encoding!r}"
            ) from error


@dataclass(frozen=True, kw_only=True)
class NERConfig(TaskConfig):
    """The recipe for named entities."""

    data: NERData = field(default_factory=NERData)
    model: TaggerConfig = field(default_factory=TaggerConfig)


class NER(TaggingTask):
    """Find the names in a sentence."""

    name = "ner"
    metric = "f1"
    config_class = NERConfig
    closed_label_set = True

    config: NERConfig

    def read_examples(self, path: Path) -> list[TaggedSentence]:
        """Read a column file."""
        settings = self.config.data
        return data.read_conll(path, column=settings.column, encoding=settings.encoding)

    def collect_labels(self, examples: Sequence[TaggedSentence]) -> list[str]:
        """Return O, and B- and I- of each type of the training examples, even if one is unused."""
        kinds = {tag.partition("-")[2] for tag in super().collect_labels(examples) if tag != "O"}
        return sorted({"O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in kinds)})

    def build_head(self, widths: Widths, labels: list[str]) -> NERHead:
        """Build the biLSTM-CRF."""
        return NERHead(self.config.model, widths, labels)

    def score(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[list[str]]
    ) -> dict[str, float]:
        """Return precision, recall and F1 over names."""
        return metric.score([example.tags for example in examples], predictions)

    def count(self, example: TaggedSentence, prediction: list[str]) -> tuple[float, ...]:
        """Count correct, predicted and gold names."""
        return metric.count_names([example.tags], [prediction]).totals()

    def score_counts(self, sums: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
        """Return the F1 over names."""
        return counts.f1(sums)

    def format_text(self, example: TaggedSentence, prediction: list[str]) -> str:
        """Put names in brackets, with their types."""
        words = list(example.tokens)
        for first, after, kind in extract_spans(prediction):
            words[first] = f"[{words[first]}"
            words[after - 1] += f" {kind.upper()}]"
        return " ".join(words)
