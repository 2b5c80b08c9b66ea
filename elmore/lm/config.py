"""Recipes of pretraining and fine-tuning: model, softmax, batches and training settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmore import config, recipes
from elmore.corpus.stream import StreamConfig
from elmore.errors import ConfigError
from elmore.model.config import BiLMConfig, SoftmaxConfig
from elmore.train.config import TrainConfig
from elmore.weights.bundle import Card
from elmore.weights.catalogue import known_models


@dataclass(frozen=True, kw_only=True)
class DistillationConfig:
    """Knowledge distillation from a larger model."""

    teacher: str | None = None
    """Name or folder of a model whose LSTM layers are extra targets, and its predictions with
    `soft_targets`; none: no teacher."""
    weight: float = 1.0
    """Factor of their loss: the squared error of a layer relative to its squared norm."""
    soft_targets: float = 0.0
    """Share of the loss of a word that is the cross-entropy to the teacher's predictions."""

    def __post_init__(self) -> None:
        if self.teacher == "":
            raise ConfigError("distillation.teacher is empty; name a model, or none for no teacher")
        if self.weight <= 0:
            raise ConfigError(f"distillation.weight must be above 0, found {self.weight}")
        if not 0 <= self.soft_targets <= 1:
            raise ConfigError(
                f"distillation.soft_targets must be from 0 to 1, found {self.soft_targets}"
            )
        if self.soft_targets and self.teacher is None:
            raise ConfigError(
                f"distillation.soft_targets is {self.soft_targets}, but there is no teacher; set "
                "distillation.teacher, or soft_targets to 0"
            )


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Settings of `elmore pretrain`, apart from the corpus."""

    model: BiLMConfig = field(default_factory=BiLMConfig)
    softmax: SoftmaxConfig = field(default_factory=SoftmaxConfig)
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    freeze_bilm: bool = False
    """Train the softmax alone, for the biLM of another model (`--init`)."""
    card: Card = field(default_factory=Card)
    """For the model card: language, licence, data."""

    def __post_init__(self) -> None:
        if self.distillation.soft_targets and self.softmax.kind == "adaptive":
            raise ConfigError(
                "distillation.soft_targets needs logits of the same words as the teacher's, which "
                "an adaptive softmax does not have; set softmax.kind to sampled or full"
            )
        if self.freeze_bilm and self.distillation.teacher is not None:
            raise ConfigError("freeze_bilm leaves nothing to teach; set distillation.teacher=none")


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Settings of `elmore finetune`, apart from the model and the corpus."""

    softmax: SoftmaxConfig = field(default_factory=SoftmaxConfig)
    """For a model without a softmax; others keep theirs."""
    stream: StreamConfig = field(default_factory=StreamConfig)
    softmax_train: TrainConfig = field(default_factory=TrainConfig)
    """For training a new softmax, with the biLM frozen, before the whole model."""
    train: TrainConfig = field(default_factory=TrainConfig)
    card: Card = field(default_factory=Card)
    """For the model card: language, licence and name of the text."""


def read_pretrain_recipe(recipe: str, overrides: Sequence[str] = ()) -> PretrainConfig:
    """Read a recipe for pretraining.

    Args:
        recipe: A name such as `tiny`, or the path of a TOML file.
        overrides: `section.key=value` strings that replace values of the recipe.

    Raises:
        ConfigError: There is no such recipe, or a key or value is not valid.
    """
    packaged = recipes.list_recipes("bilm")
    path = packaged.get(recipe, Path(recipe))
    if recipe not in packaged and not path.is_file():
        what = "is a model, not a recipe" if recipe in known_models() else "no such recipe"
        raise ConfigError(f"{recipe}: {what}; name a file, or one of {', '.join(packaged)}")
    return config.read_recipe(PretrainConfig, path, overrides)


def read_finetune_recipe(
    recipe: str | None = None, overrides: Sequence[str] = ()
) -> FinetuneConfig:
    """Read a recipe for fine-tuning: a TOML file, or the packaged one; see above for the rest."""
    path = Path(recipe) if recipe else recipes.FOLDER / "finetune.toml"
    return config.read_recipe(FinetuneConfig, path, overrides)
