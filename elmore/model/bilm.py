"""The bidirectional language model of ELMo (Peters et al., 2018): the file to read first.

Words become vectors without context (layer 0). Two stacks of LSTMs read them, one from the left
and one from the right, and never look at each other. Layer l of a token is what both say of it:

    layers[0] = [token ; token]
    layers[l] = [forward_l ; backward_l]                              l = 1 .. L
    forward_l = LSTM_l(forward_(l-1)) + forward_(l-1) if l > 1        the skip connection

Shapes: N distinct words, C characters, B sentences, T tokens, D width of one direction,
H cell width, L LSTM layers.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.model.config import BiLMConfig
from elmore.model.layer_stack import LayerStack
from elmore.model.lstm import LSTMState, ProjectedLSTM
from elmore.model.token_encoder import TokenEncoder


class BiLMState(NamedTuple):
    """What both stacks remember: direction (forward, backward), layer, sentence."""

    output: Float[Tensor, "2 L B D"]
    cell: Float[Tensor, "2 L B H"]


class BiLM(nn.Module):
    """Training, fine-tuning and embedding all run this one network.

    It keeps no state: it starts from zeros or from the state it is given, and gives back the new
    one. The same sentence gets the same layers, whatever stands beside it in the batch.
    """

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenEncoder(config)
        self.dropout = nn.Dropout(config.dropout)
        self.forward_layers = _stack(config)
        self.backward_layers = _stack(config)

    def forward(
        self,
        index: Int[Tensor, "B T"],
        characters: Int[Tensor, "N C"] | None = None,
        words: Int[Tensor, " N"] | None = None,
        state: BiLMState | None = None,
    ) -> tuple[LayerStack, BiLMState]:
        """Run sentences of distinct words: `index` says which word is where, negative for none."""
        mask = index >= 0
        vectors = self.tokens(characters, words)[index.clamp(min=0)] * mask[:, :, None]  # (B, T, D)
        return self.contextualize(vectors, mask, state)

    def contextualize(
        self,
        vectors: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
        state: BiLMState | None = None,
    ) -> tuple[LayerStack, BiLMState]:
        """Run both stacks over token vectors; a row's tokens stand at its left."""
        state = state or self.zero_state(len(mask), vectors)
        flip = _flip(mask)
        forward, forward_state = self._read(self.forward_layers, vectors, mask, state, 0)
        backward, backward_state = self._read(
            self.backward_layers, _pick(vectors, flip), mask, state, 1
        )
        backward = [_pick(layer, flip) for layer in backward]
        layers = [torch.cat(pair, dim=2) for pair in zip(forward, backward, strict=True)]
        outputs, cells = zip(*forward_state, *backward_state, strict=True)
        shape = (2, self.config.lstm.num_layers)
        new_state = BiLMState(
            torch.stack(outputs).unflatten(0, shape), torch.stack(cells).unflatten(0, shape)
        )
        return LayerStack(torch.stack(layers), mask), new_state

    def _read(
        self,
        layers: nn.ModuleList,
        vectors: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
        state: BiLMState,
        direction: int,
    ) -> tuple[list[Float[Tensor, "B T D"]], list[LSTMState]]:
        """Run one stack from left to right: the token layer and each LSTM layer, and the states."""
        outputs, states = [vectors], []
        for number, layer in enumerate(layers):
            inputs = self.dropout(outputs[-1])
            start = LSTMState(state.output[direction, number], state.cell[direction, number])
            hidden, end = layer(inputs, mask, start)
            if number > 0 and self.config.lstm.skip_connections:
                hidden = hidden + inputs * mask[:, :, None]
            outputs.append(hidden)
            states.append(end)
        return outputs, states

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
