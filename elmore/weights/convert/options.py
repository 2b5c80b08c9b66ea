"""options.json of bilm-tf and AllenNLP, to our configuration and back."""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmore.errors import ConfigError
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig, WordsConfig
from elmore.text.characters import ByteAlphabet

_LSTM_KEYS = ("dim", "projection_dim", "n_layers", "cell_clip", "proj_clip", "use_skip_connections")
_CHAR_KEYS = (
    "activation",
    "embedding",
    "filters",
    "max_characters_per_token",
    "n_characters",
    "n_highway",
)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not a readable JSON file ({error})") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def to_config(options: Mapping[str, Any], where: str) -> BiLMConfig:
    """Take what shapes the network; what only training used is left alone."""
    try:
        lstm = _lstm(_section(options, "lstm", _LSTM_KEYS, where))
        if "char_cnn" in options:
            characters = _characters(_section(options, "char_cnn", _CHAR_KEYS, where))
            projection = characters.num_filters != lstm.output_dim
            return BiLMConfig(characters=characters, lstm=lstm, projection=projection)
        words = WordsConfig(num_words=options["n_tokens_vocab"], dim=lstm.output_dim)
        return BiLMConfig(characters=None, words=words, projection=False, lstm=lstm)
    except KeyError as error:
        raise ConfigError(
            f"{where}: key {error} is missing; expected the options.json of a bilm-tf or AllenNLP "
            "model"
        ) from error
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ConfigError) and str(error).startswith(where):
            raise
        raise ConfigError(f"{where}: {error}") from error


def _section(
    options: Mapping[str, Any], name: str, known: tuple[str, ...], where: str
) -> Mapping[str, Any]:
    section = options[name]
    for key in section:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
            raise ConfigError(f"{where}: {name}: unknown key {key!r}; {hint}")
    return section


def _lstm(section: Mapping[str, Any]) -> LSTMConfig:
    cell_dim, output_dim = section["dim"], section["projection_dim"]
    return LSTMConfig(
        num_layers=section.get("n_layers", 1),
        cell_dim=cell_dim,
        output_dim=output_dim,
        projection=output_dim != cell_dim,
        cell_clip=_clip(section.get("cell_clip")),
        output_clip=_clip(section.get("proj_clip")),
        forget_bias=1.0,
        skip_connections=bool(section.get("use_skip_connections", False)),
    )


def _clip(value: float | None) -> float | None:
    return float(value) if value else None  # their code takes 0 for "no clip"


def _characters(section: Mapping[str, Any]) -> CharCNNConfig:
    activation = section["activation"]
    if activation not in ("relu", "tanh"):
        raise ConfigError(f"char_cnn: activation must be 'relu' or 'tanh', found {activation!r}")
    num_ids = section.get("n_characters", ByteAlphabet.num_ids)
    if num_ids not in (ByteAlphabet.num_ids, ByteAlphabet.num_ids + 1):
        raise ConfigError(
            f"char_cnn: n_characters must be 261 (training) or 262 (prediction), found {num_ids!r}"
        )
    return CharCNNConfig(
        num_ids=ByteAlphabet.num_ids,
        padding_id=ByteAlphabet.padding,
        max_characters=section["max_characters_per_token"],
        embedding_dim=section["embedding"]["dim"],
        filters=tuple((int(width), int(count)) for width, count in section["filters"]),
        activation=activation,
        num_highways=section.get("n_highway") or 0,
    )


def from_config(config: BiLMConfig) -> dict[str, Any]:
    """Write options.json anew, for a model that did not come from one."""
    lstm, characters = config.lstm, config.characters
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
        assert config.words is not None
        return options | {"n_tokens_vocab": config.words.num_words}
    options["char_cnn"] = {
        "activation": characters.activation,
        "embedding": {"dim": characters.embedding_dim},
        "filters": [list(pair) for pair in characters.filters],
        "max_characters_per_token": characters.max_characters,
        "n_characters": ByteAlphabet.num_ids + 1,
        "n_highway": characters.num_highways,
    }
    return options
