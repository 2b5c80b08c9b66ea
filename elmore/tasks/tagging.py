"""What tasks that give each token a tag have in common.

Shapes: B sentences, T tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from elmore.errors import ConfigError
from elmore.tasks.data.columns import Tagged
from elmore.tasks.embedding.network import Embedded, Widths
from elmore.tasks.layers.encoders import BiLSTM, VariationalDropout
from elmore.tasks.task import Features, Task


@dataclass(frozen=True, kw_only=True)
class TaggerConfig:
    """The encoder of a tagger."""

    hidden_dim: int = 200
    """Width of one direction."""
    num_layers: int = 2
    dropout: float = 0.5
    """On what goes into the encoder, between its layers, and on what comes out."""

    def __post_init__(self) -> None:
        if self.hidden_dim < 1 or self.num_layers < 1 or not 0 <= self.dropout < 1:
            raise ConfigError(
                "model.hidden_dim and model.num_layers must be at least 1 and model.dropout from 0 "
                f"to below 1, found {self.hidden_dim}, {self.num_layers} and {self.dropout}"
            )


class TagScores(nn.Module):
    """A biLSTM and a score for each label of each token."""

    def __init__(self, config: TaggerConfig, widths: Widths, num_labels: int) -> None:
        super().__init__()
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = BiLSTM(widths.input, config.hidden_dim, config.num_layers, config.dropout)
        self.scores = nn.Linear(self.encoder.output_dim + widths.above, num_labels)

    def forward(self, embedded: Embedded) -> torch.Tensor:
        """Give scores (B, T, K)."""
        states = self.encoder(self.dropout(embedded.vectors), embedded.mask)
        return self.scores(self.dropout(torch.cat([states, embedded.above], dim=-1)))


class Tagging(Task):
    """The part of a `Task` that is the same for every tagger."""

    def example(self, text: str, *, tokenized: bool = False) -> Tagged:
        """Make an example without tags."""
        return Tagged(self.tokenize(text, tokenized=tokenized), [])

    def sentences(self, example: Tagged) -> list[list[str]]:
        """Give the one sentence there is."""
        return [example.tokens]

    def labels(self, examples: Sequence[Tagged]) -> list[str]:
        """Give every tag of the training examples."""
        return sorted({tag for example in examples for tag in example.tags})

    def features(self, examples: Sequence[Tagged], labels: list[str], *, truth: bool) -> Features:
        """Give the tags as numbers (B, T)."""
        if not truth:
            return {}
        number = {label: i for i, label in enumerate(labels)}
        tags = np.zeros((len(examples), max(len(e.tokens) for e in examples)), dtype=np.int64)
        for row, example in zip(tags, examples, strict=True):
            row[: len(example.tags)] = [number[tag] for tag in example.tags]
        return {"tags": torch.from_numpy(tags)}

    def as_json(self, example: Tagged, prediction: list[str]) -> dict[str, Any]:
        """Give tokens and tags."""
        return {"tokens": example.tokens, "tags": prediction}

    def truth(self, example: Tagged) -> list[str]:
        """Give the tag of each token."""
        return example.tags

    def written(
        self, examples: Sequence[Tagged], predictions: Sequence[list[str]], ending: str = ""
    ) -> Iterator[str]:
        """Give columns as conlleval reads them: token, tag, predicted tag."""
        for example, prediction in zip(examples, predictions, strict=True):
            for row in zip(example.tokens, example.tags, prediction, strict=True):
                yield " ".join(row)
            yield ""
