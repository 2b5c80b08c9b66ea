"""What tasks that give each example one label have in common.

To add a classifier, subclass `ClassificationTask` and `ClassifierHead`: `sst` and `snli` show how.

Shapes: N examples, K labels.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from elmore.tasks.embedding.network import PaddedTokens
from elmore.tasks.metrics import accuracy, counts
from elmore.tasks.task import Decision, Features, Loss, Task, TaskHead


@dataclass(frozen=True)
class LabeledExample:
    """An example with one gold label, which is empty if it is not known."""

    label: str


class ClassifierHead(TaskHead):
    """A network that scores each label of an example."""

    def __init__(self, labels: list[str]) -> None:
        super().__init__()
        self.labels = labels

    @abstractmethod
    def logits(self, embedded: PaddedTokens) -> Float[Tensor, "N K"]:
        """Return the logits of each label."""

    def forward(self, embedded: PaddedTokens, features: Features) -> Loss:
        """Return the cross-entropy of the gold labels."""
        labels = features["labels"]
        total = functional.cross_entropy(self.logits(embedded), labels, reduction="sum")
        return Loss(total, torch.full((), len(labels), device=labels.device))

    def predict(self, embedded: PaddedTokens, features: Features) -> list[str]:
        """Return the most likely label of each example."""
        return [self.labels[best] for best in self.logits(embedded).argmax(dim=-1).tolist()]

    def confidences(
        self, embedded: PaddedTokens, features: Features, predictions: list[str]
    ) -> list[float]:
        """Return the probability of each predicted label."""
        return self.logits(embedded).softmax(dim=-1).max(dim=-1).values.tolist()


class ClassificationTask(Task):
    """A task that gives each example one label."""

    metric = "accuracy"

    closed_label_set = True

    def gold_labels(self, example: LabeledExample) -> list[str]:
        """Return its one label."""
        return [example.label]

    def collect_labels(self, examples: Sequence[LabeledExample]) -> list[str]:
        """Return all labels of the training examples."""
        return sorted({example.label for example in examples})

    def make_features(
        self, examples: Sequence[LabeledExample], labels: list[str], *, with_gold: bool
    ) -> Features:
        """Return the gold labels as numbers (N,)."""
        if not with_gold:
            return {}
        number = {label: i for i, label in enumerate(labels)}
        return {"labels": torch.tensor([number[example.label] for example in examples])}

    def score(
        self, examples: Sequence[LabeledExample], predictions: Sequence[str]
    ) -> dict[str, float]:
        """Return the accuracy."""
        return accuracy.score([example.label for example in examples], predictions)

    def count(self, example: LabeledExample, prediction: str) -> tuple[float, ...]:
        """Count whether the label is right."""
        return float(example.label == prediction), 1.0

    def decisions(self, example: LabeledExample, prediction: str) -> Iterator[Decision]:
        """Yield its one label."""
        text = " | ".join(" ".join(words) for words in self.sentences(example))
        yield Decision(example.label, prediction, text)

    def score_counts(self, sums: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
        """Return the accuracy."""
        return counts.ratio(sums)
