"""A recipe: the model, its softmax, the layout of the text and the training, in one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmore import config, recipes
from elmore.corpus.stream import StreamConfig
from elmore.errors import ConfigError
from elmore.model.config import BiLMConfig
from elmore.model.softmax import SoftmaxConfig
from elmore.train.config import TrainConfig
from elmore.weights.bundle import Card


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Everything `elmore pretrain` needs to know but the text."""

    model: BiLMConfig = field(default_factory=BiLMConfig)
    softmax: SoftmaxConfig = field(default_factory=SoftmaxConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    card: Card = field(default_factory=Card)
    """What to say of the model: its language, licence, data."""


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Everything `elmore finetune` needs to know but the model and the text."""

    softmax: SoftmaxConfig = field(default_factory=SoftmaxConfig)
    """Of a model that comes without; others keep their own."""
    stream: StreamConfig = field(default_factory=StreamConfig)
    softmax_train: TrainConfig = field(default_factory=TrainConfig)
    """A new softmax alone, before everything together."""
    train: TrainConfig = field(default_factory=TrainConfig)


def pretraining(recipe: str, overrides: Sequence[str] = ()) -> PretrainConfig:
    """Read a recipe: one of ours by its name, or a file."""
    ours = recipes.list_recipes("bilm")
    path = ours.get(recipe, Path(recipe))
    if recipe not in ours and not path.is_file():
        raise ConfigError(f"{recipe}: no such recipe; name a file, or one of {', '.join(ours)}")
    return config.read(PretrainConfig, path, overrides)


def finetuning(recipe: str | None = None, overrides: Sequence[str] = ()) -> FinetuneConfig:
    """Read a recipe for fine-tuning: a file, or ours."""
    path = Path(recipe) if recipe else recipes.FOLDER / "finetune.toml"
    return config.read(FinetuneConfig, path, overrides)
