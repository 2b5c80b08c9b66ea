"""What tasks that tag each token have in common.

To add a task that tags tokens, subclass `TaggingTask`: `ner` and `pos` show how.

Shapes: B sentences, T tokens, K labels.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.layers.encoders import BiLSTM, VariationalDropout
from elmore.tasks.task import Decision, Features, Task
from elmore.text.target_word import format_target

_PREFIX = re.compile(r"^[BIES]-(?=.)")  # of BIO and BIOES tags


@dataclass(frozen=True, kw_only=True)
class TaggerConfig:
    """The encoder of a tagger."""

    hidden_dim: int = 200
    """Width of one direction."""
    num_layers: int = 2
    dropout: float = 0.5
    """On the input of the encoder, between its layers, and on its output."""

    def __post_init__(self) -> None:
        if self.hidden_dim < 1 or self.num_layers < 1 or not 0 <= self.dropout < 1:
            raise ConfigError(
                "model.hidden_dim and model.num_layers must be at least 1 and model.dropout from 0 "
                f"to below 1, found {self.hidden_dim}, {self.num_layers} and {self.dropout}"
            )


class TagScores(nn.Module):
    """A biLSTM with a linear layer: the logits of each label of each token."""

    def __init__(self, config: TaggerConfig, widths: Widths, num_labels: int) -> None:
        super().__init__()
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = BiLSTM(widths.input, config.hidden_dim, config.num_layers, config.dropout)
        self.scores = nn.Linear(self.encoder.output_dim + widths.output, num_labels)

    def forward(self, embedded: PaddedTokens) -> Float[Tensor, "B T K"]:
        """Return the logits."""
        states = self.encoder(self.dropout(embedded.vectors), embedded.mask)
        return self.scores(self.dropout(torch.cat([states, embedded.output_elmo], dim=-1)))


class TaggingTask(Task):
    """A task that tags each token of a sentence."""

    def example_from_text(self, text: str, *, tokenized: bool = False) -> TaggedSentence:
        """Return an example without tags."""
        return TaggedSentence(self.tokenize(text, tokenized=tokenized), [])

    def sentences(self, example: TaggedSentence) -> list[list[str]]:
        """Return its one sentence."""
        return [example.tokens]

    def collect_labels(self, examples: Sequence[TaggedSentence]) -> list[str]:
        """Return all tags of the training examples."""
        return sorted({tag for example in examples for tag in example.tags})

    def make_features(
        self, examples: Sequence[TaggedSentence], labels: list[str], *, with_gold: bool
    ) -> Features:
        """Return the gold tags as numbers (B, T)."""
        if not with_gold:
            return {}
        number = {label: i for i, label in enumerate(labels)}
        tags = np.zeros((len(examples), max(len(e.tokens) for e in examples)), dtype=np.int64)
        for row, example in zip(tags, examples, strict=True):
            row[: len(example.tags)] = [number[tag] for tag in example.tags]
        return {"tags": torch.from_numpy(tags)}

    def to_dict(self, example: TaggedSentence, prediction: list[str]) -> dict[str, Any]:
        """Return tokens and tags."""
        return {"tokens": example.tokens, "tags": prediction}

    def gold_labels(self, example: TaggedSentence) -> list[str]:
        """Return the tag of each token."""
        return example.tags

    def decisions(self, example: TaggedSentence, prediction: list[str]) -> Iterator[Decision]:
        """Yield the tag of each token, without the prefix that marks its place in a span."""
        for i, (gold, predicted) in enumerate(zip(example.tags, prediction, strict=True)):
            text = format_target(example.tokens, i) if gold != predicted else ""
            yield Decision(_PREFIX.sub("", gold), _PREFIX.sub("", predicted), text)

    def prediction_lines(
        self,
        examples: Sequence[TaggedSentence],
        predictions: Sequence[list[str]],
        suffix: str = "",
    ) -> Iterator[str]:
        """Yield the columns that conlleval reads: token, gold tag, predicted tag."""
        for example, prediction in zip(examples, predictions, strict=True):
            for row in zip(example.tokens, example.tags, prediction, strict=True):
                yield " ".join(row)
            yield ""
