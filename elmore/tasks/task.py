"""What a task is to the engine: its examples, its labels, its model, its score."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.tasks.embedding.network import CharactersConfig, ElmoConfig, Widths, WordsConfig
from elmore.text.tokenizers import penn
from elmore.train.config import TrainConfig

Features = dict[str, Tensor]
"""What a model needs of a batch beside the words of its sentences; the truth, in training."""


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """What every recipe for a task may say; a task adds sections of its own."""

    batch_size: int = 32
    """Examples to a batch, over all processes."""
    words: WordsConfig = field(default_factory=WordsConfig)
    characters: CharactersConfig | None = None
    elmo: ElmoConfig = field(default_factory=ElmoConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, found {self.batch_size}")


class Loss(NamedTuple):
    """A sum over everything predicted, and how much that was."""

    total: Float[Tensor, ""]
    count: Int[Tensor, ""]


class TaskModel(nn.Module, ABC):
    """The network above the embedding, with two ways through it.

    The rows of `embedded` are the sentences of the first example, then those of the second, … A
    model of long texts is given their tokens, in the same order.
    """

    takes_tokens: ClassVar[bool] = False
    """Whether it is such a model."""
    unit: ClassVar[str] = "examples"
    """What the count of its `Loss` is a number of."""

    @abstractmethod
    def forward(self, embedded: Any, features: Features) -> Loss:  # noqa: ANN401 -- either
        """Compare with the truth."""

    @abstractmethod
    def predict(self, embedded: Any, features: Features) -> list[Any]:  # noqa: ANN401
        """Give a prediction for each example: plain data, as JSON has it."""


class Task(ABC):
    """One task, as a recipe has it. An example is whatever `read` makes of a file."""

    name: ClassVar[str]
    metric: ClassVar[str]
    """The score that decides which weights are best; more is better."""
    config_class: ClassVar[type[TaskConfig]]
    closed_labels: ClassVar[bool] = False
    """Whether a label that the training examples have not is a slip, rather than a rare one."""

    def __init__(self, config: Any) -> None:  # noqa: ANN401 -- of its `config_class`
        self.config = config

    @abstractmethod
    def read(self, path: Path) -> list[Any]:
        """Read the examples of a file."""

    def training(self, examples: list[Any]) -> list[Any]:
        """Make what is trained on of what was read for it: all of it, as it is, unless said."""
        return examples

    def texts(self, lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Make texts of lines, both with their place, for messages: a line a text, unless said."""
        yield from lines

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a text into tokens: those of a file that holds text, and what a person types.

        Where they are set apart already, it is by tabs if there is one and by spaces otherwise, as
        in a column file: a no-break space may be part of a token.
        """
        if tokenized:
            return re.findall(r"[^\t\r\n]+" if "\t" in text else r"[^ \r\n]+", text)
        return penn(text).words

    @abstractmethod
    def example(self, text: str, *, tokenized: bool = False) -> Any:  # noqa: ANN401
        """Make an example without truth of what a person typed, as `tokenize` splits it."""

    @abstractmethod
    def sentences(self, example: Any) -> list[list[str]]:  # noqa: ANN401
        """Give the tokens of its sentences: one for most tasks, two for pairs, more for texts."""

    @abstractmethod
    def labels(self, examples: Sequence[Any]) -> list[str]:
        """Fix the labels, from the training examples."""

    @abstractmethod
    def model(self, widths: Widths, labels: list[str]) -> TaskModel:
        """Build the network, for vectors of these widths."""

    @abstractmethod
    def features(self, examples: Sequence[Any], labels: list[str], *, truth: bool) -> Features:
        """Give the rest of a batch; the truth only in training."""

    @abstractmethod
    def score(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
        """Compare predictions with the truth; `metric` is one of the scores."""

    @abstractmethod
    def show(self, example: Any, prediction: Any) -> str:  # noqa: ANN401
        """Write a prediction for a person, on one line."""

    @abstractmethod
    def as_json(self, example: Any, prediction: Any) -> dict[str, Any]:  # noqa: ANN401
        """Write a prediction for a program."""

    def truth(self, example: Any) -> Iterable[str]:  # noqa: ANN401
        """Give the labels of one example, each as often as it is there, to be looked over."""
        return self.labels([example])

    def written(
        self, examples: Sequence[Any], predictions: Sequence[Any], ending: str = ""
    ) -> Iterator[str]:
        """Give the lines of a file of predictions, as other programs read them: JSON, if any.

        A task that has several formats chooses by the ending of the file's name, as in `.conllu`.
        """
        for example, prediction in zip(examples, predictions, strict=True):
            yield json.dumps(self.as_json(example, prediction), ensure_ascii=False)
