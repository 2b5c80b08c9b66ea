"""What a task is: how it reads examples, builds its network, scores and prints predictions.

A task of your own subclasses `Task` (or `TaggingTask`, `ClassificationTask`), and `registry` says
how the command line finds it.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.tasks.embedding.network import CharactersConfig, ElmoConfig, Widths, WordsConfig
from elmore.text.tokenizers import penn
from elmore.train.config import TrainConfig

Features = dict[str, Tensor]
"""Tensors that a head needs beside the embedded tokens: gold labels, spans, speakers."""


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """Sections that every task recipe has; a task adds its own."""

    batch_size: int = 32
    """Examples per batch, summed over all processes."""
    words: WordsConfig = field(default_factory=WordsConfig)
    characters: CharactersConfig | None = None
    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, found {self.batch_size}")


class Decision(NamedTuple):
    """A label that a task chose, with the gold label and the text it is about."""

    gold: str
    predicted: str
    text: str


class Loss(NamedTuple):
    """The loss summed over all predictions, and the number of predictions."""

    total: Float[Tensor, ""]
    count: Int[Tensor, ""]


class TaskHead(nn.Module, ABC):
    """The network above the embedding.

    Row i of the embedded batch is sentence i, counted over the examples: all sentences of the
    first example, then all of the second, and so on.
    """

    takes_packed: ClassVar[bool] = False
    """Whether it gets `PackedTokens` (for long texts) instead of `PaddedTokens`."""
    unit: ClassVar[str] = "examples"
    """What `Loss.count` counts, for messages."""

    @abstractmethod
    def forward(self, embedded: Any, features: Features) -> Loss:  # noqa: ANN401 -- either
        """Return the loss of a batch whose features include the gold labels."""

    @abstractmethod
    def predict(self, embedded: Any, features: Features) -> list[Any]:  # noqa: ANN401
        """Return a prediction for each example, as JSON data."""

    def confidences(self, embedded: Any, features: Features, predictions: list[Any]) -> list[Any]:  # noqa: ANN401
        """Return the probability of each prediction, or of each label in it; by default None."""
        return [None] * len(predictions)


class Task(ABC):
    """One task with its recipe. An example is whatever `read_examples` returns."""

    name: ClassVar[str]
    metric: ClassVar[str]
    """The score by which the best weights are chosen; higher is better."""
    config_class: ClassVar[type[TaskConfig]]
    closed_label_set: ClassVar[bool] = False
    """Whether a label that no training example has is an error instead of a warning."""

    def __init__(self, config: Any) -> None:  # noqa: ANN401 -- an instance of `config_class`
        self.config = config

    @abstractmethod
    def read_examples(self, path: Path) -> list[Any]:
        """Read the examples of a file."""

    def training_examples(self, examples: list[Any]) -> list[Any]:
        """Return the examples to train on, made from those that were read; by default the same."""
        return examples

    def split_texts(self, lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Group lines into texts, each with its position for messages; by default one per line."""
        yield from lines

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a text into tokens, the same way for files and for prediction.

        Args:
            text: the text.
            tokenized: the tokens are separated already, by tabs if there is one and by spaces
                otherwise, as in a column file: a no-break space may be part of a token.
        """
        if tokenized:
            return re.findall(r"[^\t\r\n]+" if "\t" in text else r"[^ \r\n]+", text)
        return penn(text).words

    @abstractmethod
    def example_from_text(self, text: str, *, tokenized: bool = False) -> Any:  # noqa: ANN401
        """Return an example without gold labels, made from a text as `tokenize` splits it."""

    @abstractmethod
    def sentences(self, example: Any) -> list[list[str]]:  # noqa: ANN401
        """Return the tokens of its sentences: one for most tasks, two for pairs, more for texts."""

    def length(self, example: Any) -> int:  # noqa: ANN401
        """Return the length by which examples are batched; by default of the longest sentence."""
        return max(map(len, self.sentences(example)), default=0)

    @abstractmethod
    def collect_labels(self, examples: Sequence[Any]) -> list[str]:
        """Return the label set, collected from the training examples."""

    @abstractmethod
    def build_head(self, widths: Widths, labels: list[str]) -> TaskHead:
        """Build the network for token vectors of these widths."""

    @abstractmethod
    def make_features(
        self, examples: Sequence[Any], labels: list[str], *, with_gold: bool
    ) -> Features:
        """Return the tensors of a batch beside its tokens; gold labels only on request."""

    @abstractmethod
    def score(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
        """Compare predictions with the gold labels; `metric` is one of the scores."""

    def count(self, example: Any, prediction: Any) -> tuple[float, ...] | None:  # noqa: ANN401
        """Return counts of an example whose sums over all examples determine `metric`.

        They serve tests of significance. None, the default: the task has no such counts.
        """
        return None

    def decisions(self, example: Any, prediction: Any) -> Iterator[Decision]:  # noqa: ANN401
        """Yield the labels of an example, for a confusion matrix; by default none."""
        yield from ()

    def score_counts(self, sums: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
        """Return `metric` for R sums of what `count` returns."""
        raise NotImplementedError(f"{self.name} has no counts")

    @abstractmethod
    def format_text(self, example: Any, prediction: Any) -> str:  # noqa: ANN401
        """Format a prediction on one line, for reading."""

    @abstractmethod
    def to_dict(self, example: Any, prediction: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return a prediction as JSON data."""

    def gold_labels(self, example: Any) -> Iterable[str]:  # noqa: ANN401
        """Yield the gold labels of an example, one per occurrence."""
        return self.collect_labels([example])

    def prediction_lines(
        self, examples: Sequence[Any], predictions: Sequence[Any], suffix: str = ""
    ) -> Iterator[str]:
        """Yield the lines of a predictions file in the standard format of the task.

        Args:
            examples: what was predicted for.
            predictions: one for each example.
            suffix: of the file's name, such as `.conllu`, where a task has several formats.
        """
        for example, prediction in zip(examples, predictions, strict=True):
            yield json.dumps(self.to_dict(example, prediction), ensure_ascii=False)
