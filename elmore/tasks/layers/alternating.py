"""A deep LSTM whose layers read in turn forwards and backwards, with highways (He et al., 2017).

    x_l   what layer l reads: the output of the one below, in the other order
    out_l = r * lstm_l(x_l) + (1 - r) * (W x_l + b),   r = sigmoid(W' x_l + b')

As in the paper, layer 1 reads a sentence from its front and layer 2 the outputs of layer 1 from
their end, so each layer costs one direction and two of them see the whole sentence; weights start
orthogonal. Unlike there, the highway stands outside the recurrence: its gate r sees the input of
its layer but not the state before it, what the next step remembers is the plain state of the LSTM,
and dropout falls between layers instead of on that state. So each layer is one call of torch's own
LSTM, and no loop over time is left to Python.

Shapes: B sentences, T tokens, I input width, O output width.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.tasks.layers.encoders import VariationalDropout, moved


class AlternatingLSTM(nn.Module):
    """Layers of LSTMs in turning directions, the first forwards, with variational dropout between.

    A sentence is the front of its row in the mask. Behind it the output is zero, and what lies
    there, or how much of it, changes nothing.
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
            else:  # the forget gate, second of the four, starts open; it has two biases
                nn.init.zeros_(weight)
                weight.data.chunk(4)[1].fill_(1.0 if "bias_ih" in name else 0.0)

    def forward(
        self, x: Float[Tensor, "B T I"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T O"]:
        """Read each sentence up to its end."""
        if not x.numel():
            return x.new_zeros(*mask.shape, self.output_dim)
        places = _turned_places(mask)
        for number, (layer, highway) in enumerate(zip(self.layers, self.highways, strict=True)):
            if number:
                x = moved(self.dropout(x), places)
            gate, carried = highway(x).chunk(2, dim=-1)
            # What lies behind a sentence comes last in both orders: it needs no packing.
            x = torch.lerp(carried, layer(x)[0], gate.sigmoid())
        if len(self.layers) % 2 == 0:
            x = moved(x, places)
        return x.masked_fill(~mask[:, :, None], 0.0)


def _turned_places(mask: Bool[Tensor, "B T"]) -> Int[Tensor, " BT"]:
    """Say where in all rows each token is found when its sentence is turned round."""
    num_sentences, num_tokens = mask.shape
    token = torch.arange(num_tokens, device=mask.device)
    lengths = mask.sum(dim=1, keepdim=True)
    turned = torch.where(mask, lengths - 1 - token, token)
    first = num_tokens * torch.arange(num_sentences, device=mask.device)
    return (first[:, None] + turned).flatten()
