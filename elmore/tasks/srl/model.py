"""Labels for the arguments of each predicate (He et al., 2017), and which tokens are predicates.

A deep alternating LSTM reads the sentence once for each predicate, which an indicator marks, and
scores the labels of each token by itself; only in decoding must they be BIO. Beside it a shallow
biLSTM, which reads the sentence once, says which tokens are predicates, for text where nobody has.

Shapes: B sentences, T tokens, F frames: a predicate and its sentence.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.errors import ConfigError
from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.layers.alternating import AlternatingLSTM
from elmore.tasks.layers.crf import bio_transitions, transition_scores, viterbi
from elmore.tasks.layers.encoders import BiLSTM, VariationalDropout
from elmore.tasks.task import Features, Loss, TaskHead

UNLABELLED = -100
"""Stands for a label where there is none."""
_AT_ONCE = 1 << 15  # tokens of frames that are predicted together: bounds the memory


@dataclass(frozen=True, kw_only=True)
class SRLModelConfig:
    """The labeller, and the finder of predicates beside it."""

    hidden_dim: int = 300
    num_layers: int = 8
    """Every other one reads backwards."""
    dropout: float = 0.1
    """On what goes into the encoder, between its layers, and on what comes out."""
    indicator_dim: int = 100
    """Of the vector that tells the predicate from other tokens."""
    finder_dim: int = 100
    """Width of one direction of the biLSTM that finds predicates."""

    def __post_init__(self) -> None:
        for name in ("hidden_dim", "num_layers", "indicator_dim", "finder_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model.{name} must be at least 1, found {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout must be from 0 to below 1, found {self.dropout}")


class PredicateFinder(nn.Module):
    """A score for each token to be a predicate."""

    def __init__(self, input_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = VariationalDropout(dropout)
        self.encoder = BiLSTM(input_dim, hidden_dim)
        self.scores = nn.Linear(self.encoder.output_dim, 1)

    def forward(self, embedded: PaddedTokens) -> Float[Tensor, "B T"]:
        """Return scores; above zero, a token is rather a predicate than not."""
        states = self.encoder(self.dropout(embedded.vectors), embedded.mask)
        return self.scores(self.dropout(states)).squeeze(-1)


class SRLHead(TaskHead):
    """A frame for each predicate that is given, and for each that is found."""

    unit = "decisions"

    transitions: Tensor

    def __init__(self, config: SRLModelConfig, widths: Widths, labels: list[str]) -> None:
        super().__init__()
        self.labels = labels
        self.finder = PredicateFinder(widths.input, config.finder_dim, config.dropout)
        self.indicator = nn.Embedding(2, config.indicator_dim)
        nn.init.xavier_uniform_(self.indicator.weight)  # torch's own is so wide that words drown
        self.encoder = AlternatingLSTM(
            widths.input + config.indicator_dim,
            config.hidden_dim,
            config.num_layers,
            config.dropout,
        )
        self.dropout = VariationalDropout(config.dropout)
        self.scores = nn.Linear(self.encoder.output_dim + widths.output, len(labels))
        allowed = transition_scores(bio_transitions(labels))
        self.register_buffer("transitions", allowed, persistent=False)

    def forward(self, embedded: PaddedTokens, features: Features) -> Loss:
        """Return the negative log-likelihood of all labels and of which tokens are predicates.

        Every decision counts the same: a label of a token for a predicate, and whether it is one.
        """
        tags = features["tags"]
        scores = self._labels(embedded, features["rows"], features["predicates"])
        labelling = functional.cross_entropy(
            scores.flatten(0, 1).float(), tags.flatten(), ignore_index=UNLABELLED, reduction="sum"
        )
        inside = embedded.mask
        truth = features["is_predicate"][inside].float()
        finding = functional.binary_cross_entropy_with_logits(
            self.finder(embedded)[inside].float(), truth, reduction="sum"
        )
        return Loss(labelling + finding, (tags != UNLABELLED).sum() + inside.sum())

    def predict(self, embedded: PaddedTokens, features: Features) -> list[list[dict[str, Any]]]:
        """Return the frames of each sentence: of predicates that are given, and of those found."""
        found = (self.finder(embedded) > 0) & embedded.mask
        given = torch.zeros_like(found)
        given[features["rows"], features["predicates"]] = True
        rows, predicates = (given | found).nonzero(as_tuple=True)
        paths: list[list[int]] = []
        size = max(1, _AT_ONCE // max(1, found.shape[1]))
        for some, marked in zip(rows.split(size), predicates.split(size), strict=True):
            scores = self._labels(embedded, some, marked)
            paths += viterbi(scores, embedded.mask[some], self.transitions)
        frames: list[list[dict[str, Any]]] = [[] for _ in embedded.mask]
        which = zip(rows.tolist(), predicates.tolist(), paths, strict=True)
        was_given, was_found = given.tolist(), found.tolist()
        for row, predicate, path in which:
            frames[row].append(
                {
                    "predicate": predicate,
                    "given": was_given[row][predicate],
                    "found": was_found[row][predicate],
                    "tags": [self.labels[label] for label in path],
                }
            )
        return frames

    def _labels(
        self, embedded: PaddedTokens, rows: Int[Tensor, " F"], predicates: Int[Tensor, " F"]
    ) -> Float[Tensor, "F T K"]:
        """Score the labels of each token for some predicates, by sentence and token."""
        vectors, mask, above = (part.index_select(0, rows) for part in embedded)
        marked = self.indicator(_marked(predicates, mask))
        states = self.encoder(self.dropout(torch.cat([vectors, marked], dim=-1)), mask)
        return self.scores(self.dropout(torch.cat([states, above], dim=-1)))


def _marked(predicates: Int[Tensor, " F"], mask: Bool[Tensor, "F T"]) -> Int[Tensor, "F T"]:
    """Return 1 at the predicate and 0 elsewhere."""
    return (torch.arange(mask.shape[1], device=mask.device) == predicates[:, None]).long()
