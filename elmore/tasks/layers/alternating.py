"""A deep LSTM whose layers alternate in direction, with highways (He et al., 2017).

Layer 1 runs forwards over a sentence and layer 2 backwards over the outputs of layer 1, so each
layer costs one direction and two layers see the whole sentence. Weights are initialised
orthogonally. There are two kinds of highways:

- `AlternatingHighwayLSTM` is the paper's: highways inside the recurrence, and variational dropout
  on the recurrent state (`highway_lstm.py`).
- `AlternatingLSTM` has highways between its layers,

      out_l = r * lstm_l(x_l) + (1 - r) * (W x_l + b),   r = sigmoid(W' x_l + b')

  and dropout there. The gate r depends on the input x_l of the layer but not on the previous state,
  and the recurrent state is the plain LSTM state. So each layer is one call of torch's own LSTM,
  without a Python loop over time.

Shapes: B sentences, T tokens, I input width, H hidden width, O output width.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.tasks.layers.encoders import VariationalDropout, gather_tokens
from elmore.tasks.layers.highway_lstm import HighwayLSTM


class AlternatingLayers(nn.Module, ABC):
    """Layers of alternating direction, the first forwards.

    The mask must be true for a prefix of each row. The output is zero after it, and padding does
    not change the output.
    """

    def __init__(self, num_layers: int, output_dim: int) -> None:
        super().__init__()
        self.num_layers, self.output_dim = num_layers, output_dim

    @abstractmethod
    def run_layer(self, number: int, x: Float[Tensor, "B T I"]) -> Float[Tensor, "B T H"]:
        """Run a layer from left to right; padding comes last, so rows need not be packed."""

    def forward(
        self, x: Float[Tensor, "B T I"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T O"]:
        """Encode the sentences."""
        if not x.numel():
            return x.new_zeros(*mask.shape, self.output_dim)
        index = _reversal_index(mask)
        for number in range(self.num_layers):
            if number:
                x = gather_tokens(x, index)
            x = self.run_layer(number, x)
        if self.num_layers % 2 == 0:
            x = gather_tokens(x, index)
        return x.masked_fill(~mask[:, :, None], 0.0)


class AlternatingHighwayLSTM(AlternatingLayers):
    """LSTM layers with highways and variational dropout inside their recurrence."""

    def __init__(
        self, input_dim: int, hidden_dim: int, num_layers: int, dropout: float = 0.0
    ) -> None:
        super().__init__(num_layers, hidden_dim)
        widths = [input_dim, *[hidden_dim] * (num_layers - 1)]
        self.layers = nn.ModuleList(HighwayLSTM(i, hidden_dim, dropout) for i in widths)

    def run_layer(self, number: int, x: Float[Tensor, "B T I"]) -> Float[Tensor, "B T H"]:
        """Run a layer from left to right."""
        return self.layers[number](x)


class AlternatingLSTM(AlternatingLayers):
    """LSTM layers with highways and variational dropout between them."""

    def __init__(
        self, input_dim: int, hidden_dim: int, num_layers: int, dropout: float = 0.0
    ) -> None:
        super().__init__(num_layers, hidden_dim)
        widths = [input_dim, *[hidden_dim] * (num_layers - 1)]
        self.layers = nn.ModuleList(nn.LSTM(i, hidden_dim, batch_first=True) for i in widths)
        self.highways = nn.ModuleList(nn.Linear(i, 2 * hidden_dim) for i in widths)
        self.dropout = VariationalDropout(dropout)
        for name, weight in self.layers.named_parameters():
            if weight.dim() == 2:
                for gate in weight.data.chunk(4):
                    nn.init.orthogonal_(gate)
            else:  # open the forget gate, the second of four, which has two biases
                nn.init.zeros_(weight)
                weight.data.chunk(4)[1].fill_(1.0 if "bias_ih" in name else 0.0)

    def run_layer(self, number: int, x: Float[Tensor, "B T I"]) -> Float[Tensor, "B T H"]:
        """Run a layer from left to right."""
        x = self.dropout(x) if number else x
        gate, carried = self.highways[number](x).chunk(2, dim=-1)
        return torch.lerp(carried, self.layers[number](x)[0], gate.sigmoid())


def _reversal_index(mask: Bool[Tensor, "B T"]) -> Int[Tensor, " BT"]:
    """Return the index that reverses each sentence, in the flattened rows."""
    num_sentences, num_tokens = mask.shape
    token = torch.arange(num_tokens, device=mask.device)
    lengths = mask.sum(dim=1, keepdim=True)
    reversed_token = torch.where(mask, lengths - 1 - token, token)
    first = num_tokens * torch.arange(num_sentences, device=mask.device)
    return (first[:, None] + reversed_token).flatten()
