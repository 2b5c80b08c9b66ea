"""From a vector per token to one that knows its neighbours, and from letters to a vector.

Shapes: B sentences, T tokens, S tokens of all sentences, I input width, O output width, D width, N
words, C characters, F filters.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from elmore.model.char_cnn import CharCNN
from elmore.model.config import CharCNNConfig

_ROOM = 2**17  # tokens of a batch, with those that are not there: one long sentence makes many


class VariationalDropout(nn.Module):
    """Dropout that draws once a sentence: an element is gone at every token, or at none.

    (Gal and Ghahramani, 2016.)
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate must be from 0 to below 1, found {rate}")
        self.rate = rate

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Drop in training, and scale the rest up to make good for it."""
        if not self.training or not self.rate:
            return x
        kept = functional.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), self.rate)
        return x * kept

    def of_tokens(
        self, x: Float[Tensor, "S D"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "S D"]:
        """Do so with sentences of these lengths, one after another."""
        if not self.training or not self.rate:
            return x
        kept = functional.dropout(x.new_ones(len(lengths), x.shape[1]), self.rate)
        return x * kept.repeat_interleave(lengths.to(x.device), dim=0, output_size=len(x))


class BiLSTM(nn.Module):
    """Layers of LSTMs, each reading a sentence both ways, with variational dropout between them.

    A sentence is the front of its row in the mask. Behind it the output is zero, and what lies
    there, or how much of it, changes nothing.
    """

    def __init__(
        self, input_dim: int, hidden_dim: int, num_layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.output_dim = 2 * hidden_dim
        self.layers = nn.ModuleList(
            nn.LSTM(
                self.output_dim if layer else input_dim,
                hidden_dim,
                batch_first=True,
                bidirectional=True,
            )
            for layer in range(num_layers)
        )
        self.dropout = VariationalDropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T I"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T O"]:
        """Read each sentence up to its end."""
        if x.is_cuda and 0 < mask.numel() <= _ROOM:
            return self._twice(x, mask)
        lengths = mask.sum(dim=1).cpu()
        places = (torch.arange(mask.shape[1]) < lengths[:, None]).flatten().nonzero().flatten()
        places = places.to(x.device)
        read = self.of_tokens(x.flatten(0, 1).index_select(0, places), lengths)
        return laid_out(read, places, mask.shape)

    def _twice(
        self, x: Float[Tensor, "B T I"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T O"]:
        """Read all rows to the end, once for each direction: a GPU is slow at rows of any length.

        A direction is right where it has read a sentence before what is no part of it: the forward
        one where sentences begin at the left, the backward one where they end at the right.
        """
        num_rows, width = mask.shape
        step = torch.arange(width, device=mask.device)
        behind = width - mask.sum(dim=1, keepdim=True)  # so much is there behind the end
        first = width * torch.arange(num_rows, device=mask.device)[:, None]
        rightwards = (first + (step - behind).clamp(min=0)).flatten()
        back = (first + (step + behind).clamp(max=width - 1)).flatten()
        for number, layer in enumerate(self.layers):
            if number:
                x = self.dropout(x)
            forward, _ = layer(x)[0].chunk(2, dim=2)
            _, backward = layer(moved(x, rightwards))[0].chunk(2, dim=2)
            x = torch.cat([forward, moved(backward, back)], dim=2)
        return x.masked_fill(~mask[:, :, None], 0.0)

    def of_tokens(
        self, x: Float[Tensor, "S I"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "S O"]:
        """Read sentences of these lengths, one after another; the lengths are on the CPU."""
        if not len(x):
            return x.new_zeros(0, self.output_dim)
        order, sizes = _packed_order(lengths)
        order = order.to(x.device)
        for number, layer in enumerate(self.layers):
            if number:
                x = self.dropout.of_tokens(x, lengths)
            found = layer(PackedSequence(x.index_select(0, order), sizes))[0].data
            x = torch.empty_like(found).index_copy(0, order, found)
        return x


def moved(x: Float[Tensor, "B T D"], places: Int[Tensor, " BT"]) -> Float[Tensor, "B T D"]:
    """Give for each token that of another place, counted through row by row."""
    return x.flatten(0, 1).index_select(0, places).view_as(x)


def laid_out(
    tokens: Float[Tensor, "S D"], places: Int[Tensor, " S"], shape: torch.Size
) -> Float[Tensor, "B T D"]:
    """Put tokens where they stand when sentences lie side by side, and zeros elsewhere."""
    room = tokens.new_zeros(shape.numel(), tokens.shape[1])
    return room.index_copy(0, places, tokens).unflatten(0, shape)


def _packed_order(lengths: Int[Tensor, " B"]) -> tuple[Int[Tensor, " S"], Int[Tensor, " T"]]:
    """Sort tokens as a packed sequence has them: all first ones, of the longest sentence first."""
    rank = torch.empty_like(lengths)
    rank[lengths.argsort(descending=True, stable=True)] = torch.arange(len(lengths))
    starts = lengths.cumsum(0) - lengths
    step = torch.arange(int(lengths.sum())) - starts.repeat_interleave(lengths)
    order = (step * len(lengths) + rank.repeat_interleave(lengths)).argsort()
    return order, step.bincount()


class CharEncoder(CharCNN):
    """A small character CNN for taggers: words spelled in ELMo's byte alphabet to vectors.

    The widths are those of the paper's tagger of names (Peters et al., 2018).
    """

    def __init__(
        self,
        embedding_dim: int = 16,
        num_filters: int = 128,
        width: int = 3,
        max_characters: int = 50,
    ) -> None:
        super().__init__(
            CharCNNConfig(
                embedding_dim=embedding_dim,
                filters=((width, num_filters),),
                max_characters=max_characters,
                num_highways=0,
            )
        )
        self.output_dim = num_filters
