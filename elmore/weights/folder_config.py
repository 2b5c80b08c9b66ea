"""config.json of a model folder: the network and its alphabet, trained mixes, and the card."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from elmore import config
from elmore.errors import ConfigError
from elmore.model.config import BiLMConfig, SoftmaxConfig
from elmore.weights.bundle import Card

# 2 added softmax, byte counts and provenance; 3 int8; 4 softmax.safetensors; 5 packed tails.
FORMAT = 5


@dataclass(frozen=True, kw_only=True)
class AlphabetConfig:
    """How words are encoded: as bytes, as words of vocabulary.txt, or by a lexicon."""

    kind: Literal["bytes", "words", "lexicon"] = "bytes"
    characters: tuple[str, ...] | None = None
    """The characters of a lexicon, in the order of their ids."""


@dataclass(frozen=True, kw_only=True)
class MixConfig:
    """A trained mix of the layers."""

    weights: tuple[float, ...]
    gamma: float
    layer_norm: bool = False

    def __post_init__(self) -> None:
        most = float(np.finfo(np.float32).max)
        if not all(abs(x) <= most for x in (self.gamma, *self.weights)):  # false for NaN too
            raise ConfigError("weights and gamma must be finite in float32")


@dataclass(frozen=True, kw_only=True)
class FolderConfig:
    """config.json."""

    format: int
    model: BiLMConfig
    alphabet: AlphabetConfig = field(default_factory=AlphabetConfig)
    card: Card = field(default_factory=Card)
    mixes: tuple[MixConfig, ...] = ()
    options: dict | None = None
    """The original options.json."""
    softmax: SoftmaxConfig | None = None
    byte_counts: tuple[int, ...] | None = None


def read_config(path: Path) -> FolderConfig:
    """Read config.json.

    Raises:
        ConfigError: It is missing, damaged or of another program.
    """
    data = config.read_json(path)
    if "format" not in data and data.get("model_type") == "elmo":
        raise ConfigError(
            f"{path}: written by transformers; load it with elmore.integrations.huggingface, whose "
            "save_elmore writes an elmore model folder"
        )
    config.check_format(data, FORMAT, str(path), error=ConfigError)
    return config.build(FolderConfig, data, str(path))
