"""Convert options.json of bilm-tf and AllenNLP to our configuration and back."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from elmore import config
from elmore.errors import ConfigError
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig, WordsConfig
from elmore.text.characters import ByteAlphabet


@dataclass(frozen=True, kw_only=True)
class LSTMOptions:
    """The section "lstm"."""

    dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions:
    """The section "char_cnn.embedding"."""

    dim: int


@dataclass(frozen=True, kw_only=True)
class CharOptions:
    """The section "char_cnn"."""

    activation: Literal["relu", "tanh"]
    embedding: EmbeddingOptions
    filters: tuple[tuple[int, int], ...]
    max_characters_per_token: int
    n_characters: int = ByteAlphabet.num_ids
    n_highway: int | None = None

    def __post_init__(self) -> None:
        if self.n_characters not in (ByteAlphabet.num_ids, ByteAlphabet.num_ids + 1):
            raise ConfigError(
                "n_characters must be 261 (training) or 262 (prediction), found "
                f"{self.n_characters}"
            )


@dataclass(frozen=True, kw_only=True)
class Options:
    """The part of options.json that defines the network; the rest is about training."""

    lstm: LSTMOptions
    char_cnn: CharOptions | None = None
    n_tokens_vocab: int | None = None


def to_config(options: Mapping[str, Any], where: str) -> BiLMConfig:
    """Return the configuration of a network; options of training are ignored."""
    known = [field.name for field in fields(Options)]
    shaping = {key: value for key, value in options.items() if key in known}
    read = config.build(Options, shaping, where)
    try:
        lstm = _lstm(read.lstm)
        if read.char_cnn:
            characters = _characters(read.char_cnn)
            projection = characters.num_filters != lstm.output_dim
            return BiLMConfig(characters=characters, lstm=lstm, projection=projection)
        if read.n_tokens_vocab is None:
            raise ConfigError("neither 'char_cnn' nor 'n_tokens_vocab' is there")
        words = WordsConfig(num_words=read.n_tokens_vocab, dim=lstm.output_dim)
        return BiLMConfig(characters=None, words=words, projection=False, lstm=lstm)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _lstm(section: LSTMOptions) -> LSTMConfig:
    return LSTMConfig(
        num_layers=section.n_layers,
        cell_dim=section.dim,
        output_dim=section.projection_dim,
        projection=section.projection_dim != section.dim,
        cell_clip=section.cell_clip or None,  # their code takes 0 for "no clip"
        output_clip=section.proj_clip or None,
        forget_bias=1.0,
        skip_connections=section.use_skip_connections,
    )


def _characters(section: CharOptions) -> CharCNNConfig:
    return CharCNNConfig(
        num_ids=ByteAlphabet.num_ids,
        padding_id=ByteAlphabet.padding,
        max_characters=section.max_characters_per_token,
        embedding_dim=section.embedding.dim,
        filters=section.filters,
        activation=section.activation,
        num_highways=section.n_highway or 0,
    )


def from_config(shape: BiLMConfig) -> dict[str, Any]:
    """Return options.json for a model that was not loaded from one."""
    lstm, characters = shape.lstm, shape.characters
    options: dict[str, Any] = {
        "lstm": {
            "dim": lstm.cell_dim,
            "projection_dim": lstm.output_dim,
            "n_layers": lstm.num_layers,
            "cell_clip": lstm.cell_clip,
            "proj_clip": lstm.output_clip,
            "use_skip_connections": lstm.skip_connections,
        }
    }
    if characters is None:
        assert shape.words is not None
        return options | {"n_tokens_vocab": shape.words.num_words}
    options["char_cnn"] = {
        "activation": characters.activation,
        "embedding": {"dim": characters.embedding_dim},
        "filters": [list(pair) for pair in characters.filters],
        "max_characters_per_token": characters.max_characters,
        "n_characters": ByteAlphabet.num_ids + 1,
        "n_highway": characters.num_highways,
    }
    return options
