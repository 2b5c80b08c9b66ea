"""ElmoConfig: the shape of a biLM and what is done with its layers, as transformers keeps it."""

from collections.abc import Sequence
from typing import Any, Literal

from transformers import PreTrainedConfig

from elmore import config
from elmore.errors import ConfigError
from elmore.model.config import BiLMConfig
from elmore.text.characters import ByteAlphabet
from elmore.weights.bundle import Card

FORMAT = 1


class ElmoConfig(PreTrainedConfig):
    """config.json of a model for transformers.

    `bilm` is the network, `boundaries` the ids of `<S>` and `</S>` as `input_ids` has them. With
    `freeze` the biLM learns nothing and has no dropout. `layer_norm` and `last_only` are those of
    `ScalarMix`, `classifier_dropout` stands before the linear layer of a head. `card` says what
    the model is, as in a folder of elmore's; `elmore_format` is the version of all this.
    """

    model_type = "elmo"

    def __init__(
        self,
        bilm: dict[str, Any] | BiLMConfig | None = None,
        boundaries: Sequence[Sequence[int]] | None = None,
        initial_state: Literal["zero", "warm"] = "zero",
        freeze: bool = True,
        layer_norm: Literal[False, "token"] = False,
        last_only: bool = False,
        classifier_dropout: float = 0.5,
        card: dict[str, Any] | None = None,
        elmore_format: int = FORMAT,
        **kwargs: Any,  # whatever transformers knows
    ) -> None:
        if "model" in kwargs and "alphabet" in kwargs:
            raise ConfigError(
                "this config.json is of a folder of elmore's own; use from_elmore in place of "
                "from_pretrained"
            )
        told = {"format": elmore_format}
        config.check_format(told, FORMAT, "config.json", error=ConfigError)
        if initial_state not in ("zero", "warm"):
            raise ConfigError(f"initial_state must be 'zero' or 'warm', found {initial_state!r}")
        if layer_norm not in (False, "token"):
            raise ConfigError(f"layer_norm must be False or 'token', found {layer_norm!r}")
        shape = bilm if isinstance(bilm, BiLMConfig) else _shape(bilm or {})
        self.bilm = config.as_dict(shape)
        self.boundaries = [list(row) for row in boundaries or _byte_boundaries()]
        self.initial_state = initial_state
        self.freeze = freeze
        self.layer_norm = layer_norm
        self.last_only = last_only
        self.classifier_dropout = classifier_dropout
        self.card = config.as_dict(config.build(Card, card or {}, "config.json: card"))
        self.elmore_format = elmore_format
        kwargs.setdefault("pad_token_id", 0)
        super().__init__(**kwargs)

    @property
    def shape(self) -> BiLMConfig:
        """The network, as elmore knows it."""
        return _shape(self.bilm)

    @property
    def hidden_size(self) -> int:
        """2D: how wide a vector is."""
        return self.shape.width

    @property
    def num_hidden_layers(self) -> int:
        """L: how many LSTM layers there are above the token layer."""
        return self.shape.lstm.num_layers

    @property
    def num_columns(self) -> int:
        """How many ids spell a word: its row in the word table, if there is one, then letters."""
        shape = self.shape
        letters = shape.characters.max_characters if shape.characters else 0
        return letters + (shape.words is not None)


def _shape(bilm: dict[str, Any]) -> BiLMConfig:
    return config.build(BiLMConfig, bilm, "config.json: bilm")


def _byte_boundaries() -> list[list[int]]:
    alphabet = ByteAlphabet()
    return [
        [id + 1 for id in alphabet.encode_word(mark)] for mark in (alphabet.begin, alphabet.end)
    ]
