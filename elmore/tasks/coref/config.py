"""What a recipe for coreference may say."""

from dataclasses import dataclass, field
from typing import Literal

from elmore.errors import ConfigError
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True, kw_only=True)
class CorefData:
    """What is read, and how much of it at a time."""

    max_tokens: int = 1000
    """Of a longer document, training sees a run of sentences of so many, another each time."""
    unbalanced: Literal["refuse", "drop"] = "refuse"
    """What is done about a bracket without its other half; dropped, there is a warning."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ConfigError(f"data.max_tokens must be at least 1, found {self.max_tokens}")


@dataclass(frozen=True, kw_only=True)
class CorefModelConfig:
    """The network above the embedding (Lee et al., 2017)."""

    hidden_dim: int = 200
    """Of the biLSTM, one direction."""
    num_layers: int = 1
    score_dim: int = 150
    """Of the two hidden layers of each score."""
    feature_dim: int = 20
    """Of what stands for a width, a distance, a speaker."""
    input_dropout: float = 0.5
    dropout: float = 0.2
    """In and above the biLSTM, and in the scores."""
    max_width: int = 15
    """Tokens of a mention, at most; longer ones are not found."""
    spans_per_token: float = 0.4
    """How many spans are kept."""
    max_antecedents: int = 100
    """How many kept spans each looks back at."""
    mention_loss: float = 1.0
    """What it weighs that a kept span is a true mention or not; the paper has it at 0."""

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
    """A recipe for coreference; an example, of which a batch has so many, is a document."""

    batch_size: int = 1
    data: CorefData = field(default_factory=CorefData)
    model: CorefModelConfig = field(default_factory=CorefModelConfig)
