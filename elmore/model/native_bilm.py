"""The biLM in native code and numpy: what reads text on a CPU, without torch.

`bilm.py` defines the network. Here are the same layers with packed weights, made from the arrays of
a model folder (`NativeBiLM.from_arrays`) or from the modules of torch (`BiLM.pack`). A word and a
sentence get the same bits alone and in any batch.

Shapes: N distinct words, C characters, F filters, B sentences, T tokens, D width of one direction,
H cell width, L LSTM layers.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from elmore.model import native
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmore.model.layer_stack import LayerStack
from elmore.model.lstm.native import NativeStack, PackedLayer
from elmore.model.native import PackedMatrix
from elmore.model.native_threads import run_together
from elmore.model.state import BOTH, FORWARD, BiLMState, LSTMState, stack_states

Arrays = Mapping[str, Any]
"""Weights by their names in `state_dict` and in files: arrays of floats, or `Int8Matrix`."""


class NativeLinear(NamedTuple):
    """A linear layer."""

    weight: PackedMatrix
    bias: Float[np.ndarray, " Y"]

    def __call__(self, rows: Float[np.ndarray, "B X"]) -> Float[np.ndarray, "B Y"]:
        """Return rows W' + b."""
        return native.multiply(self.weight, rows, self.bias)


class NativeHighway(NamedTuple):
    """A highway layer; `highway.py` has the equation."""

    gate: NativeLinear
    transform: NativeLinear

    def __call__(self, x: Float[np.ndarray, "N F"]) -> Float[np.ndarray, "N F"]:
        """Return the gated sum of the transformed and the unchanged input."""
        return native.run_highway(self.gate(x), self.transform(x), x)


class NativeCharCNN(NamedTuple):
    """The character CNN; `char_cnn.py` has the equation."""

    config: CharCNNConfig
    embedding: Float[np.ndarray, "V E"]
    banks: Sequence[PackedMatrix]
    bias: Float[np.ndarray, " F"]
    highways: Sequence[NativeHighway]

    def __call__(self, characters: Int[np.ndarray, "N C"]) -> Float[np.ndarray, "N F"]:
        """Return one vector per word.

        Raises:
            IndexError: An id is not one of the model.
            DataError: The ids have more columns than the model reads.
        """
        config = self.config
        if characters.size and not (characters.min() >= 0 and characters.max() < config.num_ids):
            raise IndexError(f"character ids must be below {config.num_ids} and not negative")
        padding = config.padded_width(characters.shape[1]) - characters.shape[1]
        characters = np.pad(characters, ((0, 0), (0, padding)), constant_values=config.padding_id)
        words = native.run_char_cnn(self.embedding, characters, self.banks, self.bias)
        if config.activation == "relu":
            np.maximum(words, 0, out=words)
        else:
            words = native.run_tanh(words)
        for highway in self.highways:
            words = highway(words)
        return words


class NativeTokenEncoder(NamedTuple):
    """Context-free word vectors: [word embedding ; character CNN], then a projection."""

    words: Float[np.ndarray, "V W"] | None
    characters: NativeCharCNN | None
    projection: NativeLinear | None

    def __call__(
        self, characters: Int[np.ndarray, "N C"] | None, words: Int[np.ndarray, " N"] | None
    ) -> Float[np.ndarray, "N D"]:
        """Encode distinct words from the ids this model uses: characters, words or both."""
        parts = []
        if self.words is not None:
            assert words is not None, "this model embeds words and was given no word ids"
            parts.append(self.words[words])
        if self.characters is not None:
            assert characters is not None, "this model reads characters and was given none"
            parts.append(self.characters(characters))
        vectors = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return vectors if self.projection is None else self.projection(vectors)


class NativeBiLM:
    """The network that embeds on a CPU.

    It keeps no state: a call starts from zeros or from the given state, and returns the new one.

    Args:
        config: Shape of the network.
        tokens: The token encoder.
        layers: The layers of the forward stack, then those of the backward one.
    """

    def __init__(
        self, config: BiLMConfig, tokens: NativeTokenEncoder, layers: Sequence[PackedLayer]
    ) -> None:
        self.config = config
        self.tokens = tokens
        half = config.lstm.num_layers
        self.stacks = [_stack(each, config.lstm) for each in (layers[:half], layers[half:])]

    @classmethod
    def from_arrays(cls, config: BiLMConfig, arrays: Arrays, *, dynamic: bool) -> "NativeBiLM":
        """Pack the weights of a network; with `dynamic` for W8A8, as in precision "fast"."""
        return cls(
            config,
            _pack_tokens(config, arrays, dynamic=dynamic),
            [
                _pack_layer(arrays, f"{direction}_layers.{number}", dynamic=dynamic)
                for direction in ("forward", "backward")
                for number in range(config.lstm.num_layers)
            ],
        )

    def run(
        self,
        index: Int[np.ndarray, "B T"],
        characters: Int[np.ndarray, "N C"] | None = None,
        words: Int[np.ndarray, " N"] | None = None,
        state: BiLMState | None = None,
    ) -> tuple[LayerStack, BiLMState]:
        """Run a batch of sentences, given as their distinct words.

        Args:
            index: Which distinct word is at each position; -1 is padding, right of the tokens.
            characters: Character ids of each distinct word.
            words: Vocabulary ids of the distinct words, for a model with word vectors.
            state: Recurrent state to start from; zeros by default.

        Returns:
            All layers of the batch, and the recurrent state after the last token of each sentence.
        """
        mask, vectors = self._embed_tokens(index, characters, words)
        state = state or zero_state(self.config.lstm, len(mask))
        width = self.config.lstm.output_dim
        states = np.empty((self.config.num_layers, *mask.shape, 2 * width), np.float32)
        states[0, ..., :width] = states[0, ..., width:] = vectors

        def run(direction: int) -> list[LSTMState]:
            outputs, after = self._run_direction(direction, mask, vectors, state)
            half = slice(direction * width, (direction + 1) * width)
            for layer, output in enumerate(outputs, start=1):
                states[layer, ..., half] = _in_order(output, mask, direction)
            return after

        ends = run_together([partial(run, direction) for direction in BOTH])
        return LayerStack(states, mask), stack_states(*ends)

    def run_to_end(
        self,
        direction: int,
        index: Int[np.ndarray, "B T"],
        characters: Int[np.ndarray, "N C"] | None = None,
        words: Int[np.ndarray, " N"] | None = None,
    ) -> list[LSTMState]:
        """Run one direction, and return the state of each layer at its end; see `run`."""
        mask, vectors = self._embed_tokens(index, characters, words)
        state = zero_state(self.config.lstm, len(mask))
        return self._run_direction(direction, mask, vectors, state)[1]

    def _embed_tokens(
        self,
        index: Int[np.ndarray, "B T"],
        characters: Int[np.ndarray, "N C"] | None,
        words: Int[np.ndarray, " N"] | None,
    ) -> tuple[Bool[np.ndarray, "B T"], Float[np.ndarray, "B T D"]]:
        mask = index >= 0
        vectors = self.tokens(characters, words)[np.maximum(index, 0)]
        return mask, vectors * mask[:, :, None]

    def _run_direction(
        self,
        direction: int,
        mask: Bool[np.ndarray, "B T"],
        vectors: Float[np.ndarray, "B T D"],
        state: BiLMState,
    ) -> tuple[list[Float[np.ndarray, "B T D"]], list[LSTMState]]:
        inputs = _in_order(vectors, mask, direction)
        return self.stacks[direction](inputs, mask, state.direction(direction), projected=False)


def zero_state(lstm: LSTMConfig, num_sentences: int) -> BiLMState:
    """Return the all-zero initial state."""
    shape = (2, lstm.num_layers, num_sentences)
    return BiLMState(
        np.zeros((*shape, lstm.output_dim), np.float32),
        np.zeros((*shape, lstm.cell_dim), np.float32),
    )


def pack_filters(weight: Float[np.ndarray, "n E width"]) -> PackedMatrix:
    """Pack the filters of a convolution."""
    # A window in memory is letter after letter; a filter of Conv1d has all letters of a channel.
    return native.pack(weight.swapaxes(1, 2).reshape(len(weight), -1))


def _stack(layers: Sequence[PackedLayer], lstm: LSTMConfig) -> NativeStack:
    return NativeStack(
        layers,
        forget_bias=lstm.forget_bias,
        cell_clip=lstm.cell_clip,
        output_clip=lstm.output_clip,
        skip_connections=lstm.skip_connections,
    )


def _pack_tokens(config: BiLMConfig, arrays: Arrays, *, dynamic: bool) -> NativeTokenEncoder:
    def linear(name: str) -> NativeLinear:
        weight = native.pack(arrays[f"{name}.weight"], dynamic=dynamic)
        return NativeLinear(weight, arrays[f"{name}.bias"])

    characters, prefix = None, "tokens.characters"
    if config.characters is not None:
        names = [f"{prefix}.convolutions.{i}" for i in range(len(config.characters.filters))]
        highways = [f"{prefix}.highways.{i}" for i in range(config.characters.num_highways)]
        characters = NativeCharCNN(
            config.characters,
            arrays[f"{prefix}.embedding.weight"],
            [pack_filters(arrays[f"{name}.weight"]) for name in names],
            np.concatenate([arrays[f"{name}.bias"] for name in names]),
            [
                NativeHighway(linear(f"{name}.gate"), linear(f"{name}.transform"))
                for name in highways
            ],
        )
    return NativeTokenEncoder(
        arrays["tokens.words.weight"] if config.words else None,
        characters,
        linear("tokens.projection") if config.projection else None,
    )


def _pack_layer(arrays: Arrays, name: str, *, dynamic: bool) -> PackedLayer:
    return PackedLayer(
        arrays[f"{name}.input"],
        arrays[f"{name}.recurrent"],
        arrays[f"{name}.bias"],
        arrays.get(f"{name}.projection"),
        dynamic=dynamic,
    )


def _in_order(
    vectors: Float[np.ndarray, "B T D"], mask: Bool[np.ndarray, "B T"], direction: int
) -> Float[np.ndarray, "B T D"]:
    """Return vectors in the order in which a direction reads them; padding stays put."""
    if direction == FORWARD:
        return vectors
    positions = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)
    reverse = np.where(mask, mask.sum(axis=1, keepdims=True) - 1 - positions, positions)
    return vectors[np.arange(len(mask))[:, None], reverse]
