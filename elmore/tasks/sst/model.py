"""The biattentive classification network (McCann et al., 2017), for one sentence.

    x       = encoder(relu(W vectors + b))
    y       = integrator([x; x - a; x * a])            a: the sentence as each token attends to it
    scores  = maxout(... [max y; mean y; min y; sum_t softmax(v . y)[t] y[t]])

As in AllenNLP's implementation, on which the paper's scores are based, the maxout layers have no
batch norm, so a prediction does not depend on the rest of the batch.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.tasks.classification import ClassifierHead
from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.layers.attention import attend, masked_softmax
from elmore.tasks.layers.encoders import BiLSTM
from elmore.tasks.layers.maxout import Maxout
from elmore.tasks.layers.pooling import masked_max, masked_mean


@dataclass(frozen=True, kw_only=True)
class BCNConfig:
    """Sizes and dropout rates, from the bottom to the top."""

    dropout: float = 0.5
    """On the token vectors."""
    hidden_dim: int = 300
    """Width of the dense layer, and of each direction of encoder and integrator."""
    dense_dropout: float = 0.25
    integrator_dropout: float = 0.1
    maxout_dims: tuple[int, ...] = (1200, 600)
    """Widths of the maxout layers below the last, which has one output per label."""
    maxout_dropouts: tuple[float, ...] = (0.2, 0.3)
    """On the output of each of them."""
    pool_size: int = 4
    """Number of linear functions per output element of a maxout layer."""

    def __post_init__(self) -> None:
        dropouts = (
            self.dropout,
            self.dense_dropout,
            self.integrator_dropout,
            *self.maxout_dropouts,
        )
        if not all(0 <= rate < 1 for rate in dropouts):
            raise ConfigError(f"model: each dropout must be from 0 to below 1, found {dropouts}")
        if min(self.hidden_dim, self.pool_size, *self.maxout_dims) < 1:
            raise ConfigError(
                "model.hidden_dim, model.pool_size and model.maxout_dims must be at least 1, found "
                f"{self.hidden_dim}, {self.pool_size} and {self.maxout_dims}"
            )
        if len(self.maxout_dims) != len(self.maxout_dropouts):
            raise ConfigError(
                "model.maxout_dropouts must be as many as model.maxout_dims, found "
                f"{len(self.maxout_dropouts)} and {len(self.maxout_dims)}"
            )


class BCN(ClassifierHead):
    """Predicts one label for a sentence."""

    def __init__(self, config: BCNConfig, widths: Widths, labels: list[str]) -> None:
        super().__init__(labels)
        self.dense = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(widths.input, config.hidden_dim),
            nn.ReLU(),
            nn.Dropout(config.dense_dropout),
        )
        self.encoder = BiLSTM(config.hidden_dim, config.hidden_dim)
        self.integrator = BiLSTM(3 * (self.encoder.output_dim + widths.output), config.hidden_dim)
        self.integrator_dropout = nn.Dropout(config.integrator_dropout)
        width = self.integrator.output_dim
        self.attention = nn.Linear(width, 1, bias=False)  # a bias would move all scores alike
        dims = [4 * width, *config.maxout_dims]
        layers: list[nn.Module] = []
        for i, rate in enumerate(config.maxout_dropouts):
            layers += [Maxout(dims[i], dims[i + 1], config.pool_size), nn.Dropout(rate)]
        self.output = nn.Sequential(*layers, Maxout(dims[-1], len(labels), config.pool_size))

    def logits(self, embedded: PaddedTokens) -> Float[Tensor, "N K"]:
        """Return the logits of each label."""
        mask = embedded.mask
        encoded = self.encoder(self.dense(embedded.vectors), mask)
        x = torch.cat([encoded, embedded.output_elmo], dim=-1)
        attended = attend(x, x, mask)
        compared = torch.cat([x, x - attended, x * attended], dim=-1)
        y = self.integrator_dropout(self.integrator(compared, mask))
        weights = masked_softmax(self.attention(y).squeeze(-1), mask)  # (B, T)
        attended_sum = (weights[:, None].to(y.dtype) @ y).squeeze(1)
        pooled = [masked_max(y, mask), masked_mean(y, mask), -masked_max(-y, mask), attended_sum]
        return self.output(torch.cat(pooled, dim=-1))
