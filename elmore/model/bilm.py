"""The bidirectional language model of ELMo (Peters et al., 2018): the file to read first.

The token encoder makes context-free vectors (layer 0). Two stacks of LSTMs run over them, one from
the left and one from the right, independently. Layer l of a token concatenates both:

    layers[0] = [token ; token]
    layers[l] = [forward_l ; backward_l]                              l = 1 .. L
    forward_l = LSTM_l(forward_(l-1)) + forward_(l-1) if l > 1        the skip connection

Shapes: N distinct words, C characters, B sentences, T tokens, D width of one direction,
H cell width, L LSTM layers, G = 4H gates, I = D, or G where the vectors are gate inputs.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from elmore.model.config import BiLMConfig
from elmore.model.layer_stack import LayerStack
from elmore.model.lstm.backends import BACKENDS, Need, select_backend
from elmore.model.lstm.call import StateReset, disable_autocast
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.native_bilm import NativeBiLM
from elmore.model.packed_weights import PackedWeights, runs_natively, weights_version
from elmore.model.padding import as_bool
from elmore.model.quantize import Int8Rows
from elmore.model.state import BACKWARD, FORWARD, BiLMState, LSTMState, stack_states
from elmore.model.token_encoder import TokenEncoder


class BiLM(nn.Module):
    """The network that training, fine-tuning and embedding run.

    It keeps no state: a call starts from zeros or from the given state, and returns the new one.
    The layers of a sentence do not depend on the other sentences of the batch.

    `training` switches dropout on or off for one call; None follows `train()` and `eval()`. So one
    thread may embed with a network that another thread trains.

    Args:
        config: Shape of the network.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenEncoder(config)
        self.dropout = nn.Dropout(config.dropout)
        self.forward_layers = _stack(config)
        self.backward_layers = _stack(config)

    @property
    def stacks(self) -> tuple[nn.ModuleList, nn.ModuleList]:
        """The layers of each direction."""
        return self.forward_layers, self.backward_layers

    def forward(
        self,
        index: Int[Tensor, "B T"],
        characters: Int[Tensor, "N C"] | None = None,
        words: Int[Tensor, " N"] | None = None,
        state: BiLMState | None = None,
        *,
        training: bool | None = None,
    ) -> tuple[LayerStack, BiLMState]:
        """Run a batch of sentences, given as their distinct words.

        Args:
            index: Which distinct word is at each position; -1 is padding, right of the tokens.
            characters: Character ids of each distinct word.
            words: Vocabulary ids of the distinct words, for a model with word vectors.
            state: Recurrent state to start from; zeros by default.
            training: Whether dropout is applied; None follows `train()` and `eval()`.

        Returns:
            All layers of the batch, and the recurrent state after the last token of each sentence.
        """
        mask = index >= 0
        vectors = self.tokens(characters, words)[index.clamp(min=0)] * mask[:, :, None]  # (B, T, D)
        return self.contextualize(vectors, mask, state, training=training)

    def contextualize(
        self,
        vectors: Float[Tensor, "B T D"],
        mask: Shaped[Tensor, "B T"],
        state: BiLMState | None = None,
        *,
        training: bool | None = None,
    ) -> tuple[LayerStack, BiLMState]:
        """Run both stacks over token vectors.

        Args:
            vectors: Layer 0, aligned to the left of each row.
            mask: True or 1 for a token; the mask of the result is bool.
            state: Recurrent state to start from; zeros by default.
            training: Whether dropout is applied; None follows `train()` and `eval()`.

        Returns:
            All layers of the batch, and the recurrent state after the last token of each sentence.
        """
        mask = as_bool(mask)
        state = state or self.zero_state(len(mask), vectors)
        reverse = _reversed_positions(mask)
        forward, forward_state = self.run_direction(
            FORWARD, vectors, mask, state.direction(FORWARD), training=training
        )
        backward, backward_state = self.run_direction(
            BACKWARD, _reorder(vectors, reverse), mask, state.direction(BACKWARD), training=training
        )
        pairs = zip(forward, backward, strict=True)
        layers = [
            torch.cat([vectors, vectors], dim=2),
            *(torch.cat([left, _reorder(right, reverse)], dim=2) for left, right in pairs),
        ]
        return LayerStack(torch.stack(layers), mask), stack_states(forward_state, backward_state)

    @property
    def lstm_layers(self) -> Iterator[ProjectedLSTM]:
        """The layers of both stacks."""
        for stack in self.stacks:
            for layer in stack:
                assert isinstance(layer, ProjectedLSTM)
                yield layer

    def use_backend(self, name: str) -> None:
        """Run every layer by one backend.

        Args:
            name: A key of `backends.BACKENDS`, or "auto" to choose the best for each call.

        Raises:
            ValueError: There is no such backend.
        """
        if name not in ("auto", *BACKENDS):
            raise ValueError(f"no backend {name!r}; expected auto or one of {', '.join(BACKENDS)}")
        for layer in self.lstm_layers:
            layer.backend = name

    @property
    def is_fast(self) -> bool:
        """Whether inference runs in less than float32, here and with these weights."""
        layer = next(self.lstm_layers)
        with torch.no_grad():
            need = Need.from_tensors(layer.weights.tensors, layer.precision)
        return select_backend(need, layer.backend).precision == "fast"

    @property
    def version(self) -> object:
        """A value that changes when weights, backends or precisions do; see `weights_version`."""
        backends = [(layer.backend, layer.precision) for layer in self.lstm_layers]
        return weights_version(self), backends

    @property
    def num_parameters(self) -> int:
        """The number of weights, those in int8 included."""
        int8 = (module.numbers for module in self.modules() if isinstance(module, Int8Rows))
        return sum(weight.numel() for weight in (*self.parameters(), *int8))

    def quantize(self, name: str, rows: Int8Rows) -> None:
        """Hold a matrix as int8 rows, as they are in a file.

        Args:
            name: Name of the matrix in `state_dict`, one of `lstm_matrices` in `weight_shapes.py`.
            rows: Its int8 numbers and scales.
        """
        layer, _, matrix = name.rpartition(".")
        module = self.get_submodule(layer)
        assert isinstance(module, ProjectedLSTM)
        module.quantize(matrix, rows)

    def truncate(self, num_layers: int) -> None:
        """Drop the upper LSTM layers.

        Args:
            num_layers: Number of LSTM layers to keep.
        """
        self.config = replace(self.config, lstm=replace(self.config.lstm, num_layers=num_layers))
        self.forward_layers = self.forward_layers[:num_layers]
        self.backward_layers = self.backward_layers[:num_layers]

    def requires_grad_(self, requires_grad: bool = True) -> "BiLM":
        """Switch training on or off; weights in int8 become parameters before they are trained.

        Args:
            requires_grad: Whether the weights are trained.

        Returns:
            The network itself.
        """
        if requires_grad:
            for layer in self.lstm_layers:
                layer.dequantize()
        return super().requires_grad_(requires_grad)

    def project_inputs(
        self, direction: int, vectors: Float[Tensor, "B T D"]
    ) -> Float[Tensor, "B T G"]:
        """Return the gate inputs W_x x of the first layer of a stack.

        They depend on the word alone, so `embed` caches them. `run_direction(projected=True)` takes
        them in place of the vectors, and applies no dropout to them.

        Args:
            direction: `FORWARD` or `BACKWARD`.
            vectors: Layer 0.
        """
        first = self.stacks[direction][0]
        assert isinstance(first, ProjectedLSTM)
        return first.project_inputs(vectors)

    def run_direction(
        self,
        direction: int,
        vectors: Float[Tensor, "B T I"],
        mask: Shaped[Tensor, "B T"],
        states: list[LSTMState],
        reset_mask: Bool[Tensor, "B T"] | None = None,
        reset_states: list[LSTMState] | None = None,
        *,
        projected: bool = False,
        training: bool | None = None,
    ) -> tuple[list[Float[Tensor, "B T D"]], list[LSTMState]]:
        """Run one stack over tokens in the order of its direction.

        Args:
            direction: `FORWARD` or `BACKWARD`.
            vectors: Layer 0, or with `projected` the gate inputs from `project_inputs`.
            mask: True or 1 for a token.
            states: Initial state of each layer.
            reset_mask: True where another sentence begins: the state is replaced before the step.
            reset_states: State of each layer to replace it by.
            projected: Whether the vectors are gate inputs.
            training: Whether dropout is applied; None follows `train()` and `eval()`.

        Returns:
            The outputs and the final state of every LSTM layer.
        """
        outputs, ends = [], []
        inputs = vectors
        dropout = self.dropout.training if training is None else training
        for number, layer in enumerate(self.stacks[direction]):
            is_projected = projected and number == 0
            if not is_projected:
                inputs = functional.dropout(inputs, self.dropout.p, dropout)
            reset = None
            if reset_mask is not None and reset_states is not None:
                reset = StateReset(reset_mask, reset_states[number])
            hidden, end = layer(inputs, mask, states[number], reset, projected=is_projected)
            if number > 0 and self.config.lstm.skip_connections:
                hidden = hidden + inputs
            outputs.append(hidden)
            ends.append(end)
            inputs = hidden
        return outputs, ends

    def pack(self) -> NativeBiLM | None:
        """Return the network with weights packed for the native library, to run without torch.

        Returns:
            The packed network, valid until weights are moved, replaced or written to; None where
            the native library cannot run every layer.
        """
        weight = next(self.parameters())
        with torch.no_grad(), disable_autocast(weight.device):
            if not runs_natively(*self.parameters()):
                return None
            layers = [layer.pack() for layer in self.lstm_layers]
            packed = [layer for layer in layers if layer is not None]
            if len(packed) < len(layers):
                return None
            return NativeBiLM(self.config, self.tokens.pack(), packed)

    def zero_state(self, num_sentences: int, like: Tensor) -> BiLMState:
        """Return the all-zero initial state.

        Args:
            num_sentences: Number of rows.
            like: A tensor of the device and dtype to use.
        """
        lstm = self.config.lstm
        shape = (2, lstm.num_layers, num_sentences)
        return BiLMState(
            like.new_zeros(*shape, lstm.output_dim), like.new_zeros(*shape, lstm.cell_dim)
        )


def _stack(config: BiLMConfig) -> nn.ModuleList:
    return nn.ModuleList(ProjectedLSTM(config.lstm) for _ in range(config.lstm.num_layers))


def _reversed_positions(mask: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Return the positions that reverse each sentence within its length; padding stays put."""
    positions = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - positions, positions)


def _reorder(
    vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"]
) -> Float[Tensor, "B T D"]:
    return vectors.gather(1, positions[:, :, None].expand_as(vectors))


def share_weights(model: BiLM) -> BiLM:
    """Return a copy with modules and settings of its own, and the weights of the model.

    Weights, and their packed forms, are the same objects in both.
    """
    shared = [
        part
        for module in model.modules()
        for part in (module, *vars(module).values())
        if isinstance(part, Int8Rows | PackedWeights)
    ]
    # `deepcopy` does not copy what its memo holds
    memo = {id(each): each for each in (*model.parameters(), *shared)}
    return copy.deepcopy(model, memo)
