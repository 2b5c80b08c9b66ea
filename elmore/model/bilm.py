"""The bidirectional language model of ELMo (Peters et al., 2018): the file to read first.

Words become vectors without context (layer 0). Two stacks of LSTMs read them, one from the left
and one from the right, and never look at each other. Layer l of a token is what both say of it:

    layers[0] = [token ; token]
    layers[l] = [forward_l ; backward_l]                              l = 1 .. L
    forward_l = LSTM_l(forward_(l-1)) + forward_(l-1) if l > 1        the skip connection

Shapes: N distinct words, C characters, B sentences, T tokens, D width of one direction,
H cell width, L LSTM layers, G = 4H gates, I = D, or G where words are driven.
"""

from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from elmore.model.config import BiLMConfig
from elmore.model.layer_stack import LayerStack
from elmore.model.lstm.layer import BACKENDS, ProjectedLSTM
from elmore.model.lstm.reference import LSTMState, StateReset
from elmore.model.padding import as_bool
from elmore.model.token_encoder import TokenEncoder

FORWARD, BACKWARD = 0, 1  # the directions, in every order of two


class BiLMState(NamedTuple):
    """What both stacks remember: direction (forward, backward), layer, sentence."""

    output: Float[Tensor, "2 L B D"]
    cell: Float[Tensor, "2 L B H"]

    def direction(self, direction: int) -> list[LSTMState]:
        """Give what the layers of one direction remember."""
        pairs = zip(self.output[direction], self.cell[direction], strict=True)
        return [LSTMState(output, cell) for output, cell in pairs]

    @classmethod
    def stack(cls, *directions: list[LSTMState]) -> "BiLMState":
        """Put the states of all layers together, forward first."""
        outputs = [torch.stack([state.output for state in states]) for states in directions]
        cells = [torch.stack([state.cell for state in states]) for states in directions]
        return cls(torch.stack(outputs), torch.stack(cells))


class BiLM(nn.Module):
    """Training, fine-tuning and embedding all run this one network.

    It keeps no state: it starts from zeros or from the state it is given, and gives back the new
    one. The same sentence gets the same layers, whatever stands beside it in the batch.

    `training` switches dropout on or off for one call; None follows `train()` and `eval()`. So one
    thread may embed with a network that another thread trains.
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
        """Run sentences of distinct words: `index` says which word is where, negative for none."""
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
        """Run both stacks over token vectors; a row's tokens stand at its left.

        The mask may hold numbers, 1 where a token is; the mask of the result is bool.
        """
        mask = as_bool(mask)
        state = state or self.zero_state(len(mask), vectors)
        flip = _flip(mask)
        forward, ahead = self.run_direction(
            FORWARD, vectors, mask, state.direction(FORWARD), training=training
        )
        backward, behind = self.run_direction(
            BACKWARD, _pick(vectors, flip), mask, state.direction(BACKWARD), training=training
        )
        pairs = zip(forward, backward, strict=True)
        layers = [
            torch.cat([vectors, vectors], dim=2),
            *(torch.cat([left, _pick(right, flip)], dim=2) for left, right in pairs),
        ]
        return LayerStack(torch.stack(layers), mask), BiLMState.stack(ahead, behind)

    def use_backend(self, name: str) -> None:
        """Read by a kernel of `lstm.BACKENDS`; "auto" is the quickest that will do."""
        if name not in ("auto", *BACKENDS):
            raise ValueError(f"no kernel {name!r}; expected auto or one of {', '.join(BACKENDS)}")
        for layer in chain(*self.stacks):
            assert isinstance(layer, ProjectedLSTM)
            layer.kernel = name

    def project_inputs(
        self, direction: int, vectors: Float[Tensor, "B T D"]
    ) -> Float[Tensor, "B T G"]:
        """Give what words alone say to the first layer of a stack, wherever they stand.

        `read` takes it in place of the vectors; there is no dropout on it.
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
        """Run one stack over tokens in the order in which it reads them.

        Where `reset_mask` is true another sentence begins, from `reset_states`. What comes back is
        the output of each LSTM layer and the state it ended in.
        """
        outputs, ends = [], []
        inputs = vectors
        drops = self.dropout.training if training is None else training
        for number, layer in enumerate(self.stacks[direction]):
            is_projected = projected and number == 0
            if not is_projected:
                inputs = functional.dropout(inputs, self.dropout.p, drops)
            resets = None
            if reset_mask is not None and reset_states is not None:
                resets = StateReset(reset_mask, reset_states[number])
            hidden, end = layer(inputs, mask, states[number], resets, projected=is_projected)
            if number > 0 and self.config.lstm.skip_connections:
                hidden = hidden + inputs
            outputs.append(hidden)
            ends.append(end)
            inputs = hidden
        return outputs, ends

    def zero_state(self, num_sentences: int, like: Tensor) -> BiLMState:
        """Give the state of someone who has read nothing."""
        lstm = self.config.lstm
        shape = (2, lstm.num_layers, num_sentences)
        return BiLMState(
            like.new_zeros(*shape, lstm.output_dim), like.new_zeros(*shape, lstm.cell_dim)
        )


def _stack(config: BiLMConfig) -> nn.ModuleList:
    return nn.ModuleList(ProjectedLSTM(config.lstm) for _ in range(config.lstm.num_layers))


def _flip(mask: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Give the positions that reverse each sentence within its own length; padding stays put."""
    positions = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - positions, positions)


def _pick(vectors: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    return vectors.gather(1, positions[:, :, None].expand_as(vectors))
