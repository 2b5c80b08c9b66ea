"""What tasks that give each example one label have in common.

Shapes: N examples, K labels.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from elmore.tasks.embedding.network import Embedded
from elmore.tasks.metrics import accuracy
from elmore.tasks.task import Features, Loss, Task, TaskModel


@dataclass(frozen=True)
class Labelled:
    """An example of which one label is true; it is empty where nobody knows."""

    label: str


class Classifier(TaskModel):
    """A network that scores each label of an example."""

    def __init__(self, labels: list[str]) -> None:
        super().__init__()
        self.names = labels

    @abstractmethod
    def scores(self, embedded: Embedded) -> Float[Tensor, "N K"]:
        """Give a score for each label of each example."""

    def forward(self, embedded: Embedded, features: Features) -> Loss:
        """Give minus the log-probability of the labels."""
        labels = features["labels"]
        total = functional.cross_entropy(self.scores(embedded), labels, reduction="sum")
        return Loss(total, torch.full((), len(labels), device=labels.device))

    def predict(self, embedded: Embedded, features: Features) -> list[str]:
        """Give the likeliest label of each example."""
        return [self.names[best] for best in self.scores(embedded).argmax(dim=-1).tolist()]


class Classification(Task):
    """The part of a `Task` that is the same for every classifier."""

    metric = "accuracy"

    closed_labels = True

    def truth(self, example: Labelled) -> list[str]:
        """Give the one label."""
        return [example.label]

    def labels(self, examples: Sequence[Labelled]) -> list[str]:
        """Give every label of the training examples."""
        return sorted({example.label for example in examples})

    def features(self, examples: Sequence[Labelled], labels: list[str], *, truth: bool) -> Features:
        """Give the labels as numbers (N,)."""
        if not truth:
            return {}
        number = {label: i for i, label in enumerate(labels)}
        return {"labels": torch.tensor([number[example.label] for example in examples])}

    def score(self, examples: Sequence[Labelled], predictions: Sequence[str]) -> dict[str, float]:
        """Count labels that are right."""
        return accuracy.score([example.label for example in examples], predictions)
