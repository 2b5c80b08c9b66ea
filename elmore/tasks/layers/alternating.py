"""A deep LSTM whose layers alternate in direction, with highways (He et al., 2017).

    x_l   input of layer l: the output of the layer below, reversed
    out_l = r * lstm_l(x_l) + (1 - r) * (W x_l + b),   r = sigmoid(W' x_l + b')

As in the paper, layer 1 runs forwards over a sentence and layer 2 backwards over the outputs of
layer 1, so each layer costs one direction and two layers see the whole sentence; weights are
initialised orthogonally. Unlike in the paper, the highway is outside the recurrence: its gate r
depends on the input of the layer but not on the previous state, the recurrent state is the plain
LSTM state, and dropout is applied between layers instead of to that state. So each layer is one
call of torch's own LSTM, without a Python loop over time.

Shapes: B sentences, T tokens, I input width, O output width.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.tasks.layers.encoders import VariationalDropout, gather_tokens


class AlternatingLSTM(nn.Module):
    """LSTM layers of alternating direction, the first forwards, with variational dropout between.

    The mask must be true for a prefix of each row. The output is zero after it, and padding does
    not change the output.
    """

    def __init__(
        self, input_dim: int, hidden_dim: int, num_layers: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.output_dim = hidden_dim
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

    def forward(
        self, x: Float[Tensor, "B T I"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T O"]:
        """Encode the sentences."""
        if not x.numel():
            return x.new_zeros(*mask.shape, self.output_dim)
        index = _reversal_index(mask)
        for number, (layer, highway) in enumerate(zip(self.layers, self.highways, strict=True)):
            if number:
                x = gather_tokens(self.dropout(x), index)
            gate, carried = highway(x).chunk(2, dim=-1)
            # Padding comes last in both directions, so sentences need not be packed.
            x = torch.lerp(carried, layer(x)[0], gate.sigmoid())
        if len(self.layers) % 2 == 0:
            x = gather_tokens(x, index)
        return x.masked_fill(~mask[:, :, None], 0.0)


def _reversal_index(mask: Bool[Tensor, "B T"]) -> Int[Tensor, " BT"]:
    """Return the index that reverses each sentence, in the flattened rows."""
    num_sentences, num_tokens = mask.shape
    token = torch.arange(num_tokens, device=mask.device)
    lengths = mask.sum(dim=1, keepdim=True)
    reversed_token = torch.where(mask, lengths - 1 - token, token)
    first = num_tokens * torch.arange(num_sentences, device=mask.device)
    return (first[:, None] + reversed_token).flatten()
