"""Semantic role labelling with a deep alternating LSTM (He et al., 2017).

The LSTM runs over the sentence once for each predicate, which an indicator embedding marks, and
classifies each token independently; decoding enforces BIO. A shallow biLSTM predicts which tokens
are predicates, for text without gold predicates.

Shapes: B sentences, T tokens, F frames: a predicate and its sentence.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.errors import ConfigError
from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.layers.alternating import AlternatingHighwayLSTM, AlternatingLSTM
from elmore.tasks.layers.crf import bio_transitions, transition_scores, viterbi
from elmore.tasks.layers.encoders import BiLSTM, VariationalDropout
from elmore.tasks.task import Features, Loss, TaskHead

UNLABELLED = -100
"""Label of padding, which the loss ignores."""
_BATCH_TOKENS = 1 << 15  # tokens of frames per batch of prediction: bounds the memory


@dataclass(frozen=True, kw_only=True)
class SRLModelConfig:
    """The labelling network and the predicate classifier."""

    hidden_dim: int = 300
    num_layers: int = 8
    """Directions alternate, the first layer runs forwards."""
    highways: Literal["between_layers", "recurrent"] = "between_layers"
    """`recurrent`: inside the recurrence, as in the paper; `between_layers` is faster."""
    dropout: float = 0.1
    """On the input of the encoder, on its output, and with highways between layers, there."""
    recurrent_dropout: float = 0.0
    """On the recurrent state of recurrent highways, the same for all tokens."""
    indicator_dim: int = 100
    """Width of the embedding that marks the predicate."""
    finder_dim: int = 100
    """Width of one direction of the biLSTM that classifies predicates."""

    def __post_init__(self) -> None:
        for name in ("hidden_dim", "num_layers", "indicator_dim", "finder_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model.{name} must be at least 1, found {getattr(self, name)}")
        for name in ("dropout", "recurrent_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"model.{name} must be from 0 to below 1, found {getattr(self, name)}"
                )
        if self.recurrent_dropout and self.highways != "recurrent":
            raise ConfigError(
                f"model.recurrent_dropout is {self.recurrent_dropout}, which only "
                'model.highways = "recurrent" has; set one of them'
            )


class PredicateFinder(nn.Module):
    """Classifies each token as a predicate or not."""

    def __init__(self, input_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = VariationalDropout(dropout)
        self.encoder = BiLSTM(input_dim, hidden_dim)
        self.scores = nn.Linear(self.encoder.output_dim, 1)

    def forward(self, embedded: PaddedTokens) -> Float[Tensor, "B T"]:
        """Return logits; above zero, a token is a predicate."""
        states = self.encoder(self.dropout(embedded.vectors), embedded.mask)
        return self.scores(self.dropout(states)).squeeze(-1)


class SRLHead(TaskHead):
    """Predicts a frame for each gold predicate and for each predicted one."""

    unit = "decisions"

    transitions: Tensor

    def __init__(self, config: SRLModelConfig, widths: Widths, labels: list[str]) -> None:
        super().__init__()
        self.labels = labels
        self.finder = PredicateFinder(widths.input, config.finder_dim, config.dropout)
        self.indicator = nn.Embedding(2, config.indicator_dim)
        nn.init.xavier_uniform_(
            self.indicator.weight
        )  # torch's default is so large that it would dominate the words
        sizes = (widths.input + config.indicator_dim, config.hidden_dim, config.num_layers)
        self.encoder = (
            AlternatingHighwayLSTM(*sizes, config.recurrent_dropout)
            if config.highways == "recurrent"
            else AlternatingLSTM(*sizes, config.dropout)
        )
        self.dropout = VariationalDropout(config.dropout)
        self.scores = nn.Linear(self.encoder.output_dim + widths.output, len(labels))
        allowed = transition_scores(bio_transitions(labels))
        self.register_buffer("transitions", allowed, persistent=False)

    def forward(self, embedded: PaddedTokens, features: Features) -> Loss:
        """Return the loss of the argument labels and of the predicate classifier.

        Every decision has the same weight: the label of a token for a predicate, and whether a
        token is a predicate.
        """
        tags = features["tags"]
        scores = self._labels(embedded, features["rows"], features["predicates"])
        labelling = functional.cross_entropy(
            scores.flatten(0, 1).float(), tags.flatten(), ignore_index=UNLABELLED, reduction="sum"
        )
        inside = embedded.mask
        gold = features["is_predicate"][inside].float()
        finding = functional.binary_cross_entropy_with_logits(
            self.finder(embedded)[inside].float(), gold, reduction="sum"
        )
        return Loss(labelling + finding, (tags != UNLABELLED).sum() + inside.sum())

    def predict(self, embedded: PaddedTokens, features: Features) -> list[list[dict[str, Any]]]:
        """Return the frames of each sentence, for gold and predicted predicates."""
        is_found = (self.finder(embedded) > 0) & embedded.mask
        is_given = torch.zeros_like(is_found)
        is_given[features["rows"], features["predicates"]] = True
        rows, predicates = (is_given | is_found).nonzero(as_tuple=True)
        paths: list[list[int]] = []
        size = max(1, _BATCH_TOKENS // max(1, is_found.shape[1]))
        for some, marked in zip(rows.split(size), predicates.split(size), strict=True):
            scores = self._labels(embedded, some, marked)
            paths += viterbi(scores, embedded.mask[some], self.transitions)
        frames: list[list[dict[str, Any]]] = [[] for _ in embedded.mask]
        which = zip(rows.tolist(), predicates.tolist(), paths, strict=True)
        was_given, was_found = is_given.tolist(), is_found.tolist()
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
        """Return the logits of each token for some predicates, given by sentence and token."""
        vectors, mask, output_elmo = (part.index_select(0, rows) for part in embedded)
        marked = self.indicator(_mark_predicate(predicates, mask))
        states = self.encoder(self.dropout(torch.cat([vectors, marked], dim=-1)), mask)
        return self.scores(self.dropout(torch.cat([states, output_elmo], dim=-1)))


def _mark_predicate(predicates: Int[Tensor, " F"], mask: Bool[Tensor, "F T"]) -> Int[Tensor, "F T"]:
    """Return 1 at the predicate and 0 elsewhere."""
    return (torch.arange(mask.shape[1], device=mask.device) == predicates[:, None]).long()
