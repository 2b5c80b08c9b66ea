"""ElmoConfig: the shape of a biLM and of the scalar mix, as a transformers configuration."""

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
    """config.json of a transformers model.

    Args:
        bilm: The network.
        boundaries: Rows of `input_ids` for `<S>` and `</S>`.
        initial_state: LSTM state before the first token: zeros, or the stored warm-up state.
        freeze: Keep the biLM fixed and without dropout.
        layer_norm: As in `ScalarMix`.
        last_only: As in `ScalarMix`.
        classifier_dropout: Dropout before the linear layer of a head.
        card: Metadata of the model, as in an elmore folder.
        elmore_format: Format number of this file.
        kwargs: Settings of transformers.

    Raises:
        ConfigError: A value is invalid, or the file belongs to an elmore model folder.
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
        **kwargs: Any,  # settings of transformers
    ) -> None:
        if "model" in kwargs and "alphabet" in kwargs:
            raise ConfigError(
                "this config.json belongs to an elmore model folder; call from_elmore instead of "
                "from_pretrained"
            )
        config.check_format({"format": elmore_format}, FORMAT, "config.json", error=ConfigError)
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
        """The network as elmore's own configuration."""
        return _shape(self.bilm)

    @property
    def hidden_size(self) -> int:
        """2D: width of a vector."""
        return self.shape.width

    @property
    def num_hidden_layers(self) -> int:
        """Number of LSTM layers, without the token layer."""
        return self.shape.lstm.num_layers

    @property
    def num_columns(self) -> int:
        """C: ids per word: its row in the word table, if there is one, and its characters."""
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
