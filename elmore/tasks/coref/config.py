"""The recipe for coreference."""

from dataclasses import dataclass, field
from typing import Literal

from elmore.errors import ConfigError
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True, kw_only=True)
class CorefData:
    """The format of the files, and the length of training examples."""

    max_tokens: int = 1000
    """Training uses a random run of sentences of a longer document, another each time."""
    unbalanced: Literal["error", "skip"] = "error"
    """A bracket without its counterpart is an error, or skipped with a warning."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ConfigError(f"data.max_tokens must be at least 1, found {self.max_tokens}")


@dataclass(frozen=True, kw_only=True)
class CorefModelConfig:
    """The network above the embedding (Lee et al., 2017)."""

    hidden_dim: int = 200
    """Width of one direction of the biLSTM."""
    num_layers: int = 1
    score_dim: int = 150
    """Width of the two hidden layers of each score."""
    feature_dim: int = 20
    """Width of the embeddings of span width, distance, speaker and genre."""
    use_genre: bool = False
    """Score pairs by the genre of the document too, as in the paper; a genre that no training
    document has is a vector of zeros."""
    input_dropout: float = 0.5
    dropout: float = 0.2
    """In and after the biLSTM, and in the scores."""
    max_width: int = 15
    """Tokens of the longest mention that can be predicted."""
    spans_per_token: float = 0.4
    """Number of spans to keep, per token."""
    max_antecedents: int = 100
    """Candidate antecedents of each span."""
    mention_loss: float = 1.0
    """Weight of a loss on whether a kept span is a gold mention; 0 in the paper."""

    def __post_init__(self) -> None:
        sizes = ("hidden_dim", "num_layers", "score_dim", "feature_dim")
        for name in (*sizes, "max_width", "max_antecedents"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model.{name} must be at least 1, found {getattr(self, name)}")
        for name in ("input_dropout", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"model.{name} must be from 0 to below 1, found {getattr(self, name)}"
                )
        if self.spans_per_token <= 0 or self.mention_loss < 0:
            raise ConfigError(
                "model.spans_per_token must be above 0 and model.mention_loss not negative, found "
                f"{self.spans_per_token} and {self.mention_loss}"
            )


@dataclass(frozen=True, kw_only=True)
class CorefConfig(TaskConfig):
    """The recipe for coreference; an example is a document."""

    batch_size: int = 1
    data: CorefData = field(default_factory=CorefData)
    model: CorefModelConfig = field(default_factory=CorefModelConfig)
