"""ESIM, which compares two sentences word by word (Chen et al., 2017).

Dropout and activations are those of Peters et al. (2018, appendix A).

    x = encoder(vectors)                                    the same for both sentences
    a = softmax(x y^T) y                                    y: the other sentence
    z = composition(relu(W [x; a; x - a; x * a] + b))
    scores = MLP([max z; mean z] of the first, then of the second)

Shapes: B sentences, N examples, K labels, D width. Sentence 2n is the first of example n, 2n + 1
its second.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.tasks.classification import ClassifierHead
from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.layers.attention import attend
from elmore.tasks.layers.encoders import BiLSTM, VariationalDropout
from elmore.tasks.layers.pooling import masked_max, masked_mean


@dataclass(frozen=True, kw_only=True)
class ESIMConfig:
    """Width and dropout rates."""

    hidden_dim: int = 300
    """Width of dense layers, and of each direction of the LSTMs."""
    dropout: float = 0.5
    """On the input of the LSTMs and of the last two dense layers."""
    attention_dropout: float = 0.5
    """On the output of the attention."""

    def __post_init__(self) -> None:
        rates = (self.dropout, self.attention_dropout)
        if self.hidden_dim < 1 or not all(0 <= rate < 1 for rate in rates):
            raise ConfigError(
                "model.hidden_dim must be at least 1, model.dropout and model.attention_dropout "
                f"from 0 to below 1, found {self.hidden_dim}, {rates[0]} and {rates[1]}"
            )


class ESIM(ClassifierHead):
    """Predicts one label for a pair of sentences."""

    def __init__(self, config: ESIMConfig, widths: Widths, labels: list[str]) -> None:
        super().__init__(labels)
        hidden = config.hidden_dim
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = BiLSTM(widths.input, hidden)
        self.projection = nn.Sequential(
            nn.Dropout(config.attention_dropout),
            nn.Linear(4 * (self.encoder.output_dim + widths.output), hidden),
            nn.ReLU(),
        )
        self.composition = BiLSTM(hidden, hidden)
        self.output = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(4 * self.composition.output_dim, hidden),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(hidden, len(labels)),
        )

    def logits(self, embedded: PaddedTokens) -> Float[Tensor, "N K"]:
        """Return the logits of each label."""
        mask = embedded.mask
        encoded = self.encoder(self.dropout(embedded.vectors), mask)
        x = torch.cat([encoded, embedded.output_elmo], dim=-1)
        attended = attend(x, _others(x), _others(mask))
        compared = torch.cat([x, attended, x - attended, x * attended], dim=-1)
        z = self.composition(self.dropout(self.projection(compared)), mask)
        pooled = torch.cat([masked_max(z, mask), masked_mean(z, mask)], dim=-1)
        return self.output(pooled.unflatten(0, (-1, 2)).flatten(1))


def _others(rows: Tensor) -> Tensor:
    """Swap the two sentences of each pair."""
    return rows.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
