"""Sentence encoders: variational dropout, biLSTM, biGRU, character CNN.

Padded sentences are (B, T, D) with a mask that is true for a prefix of each row; packed ones are
(S, D), all tokens one after another.

Shapes: B sentences, T tokens, S tokens of all sentences, I input width, O output width, D width, N
words, C characters, F filters.
"""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from elmore.model.char_cnn import CharCNN
from elmore.model.config import CharCNNConfig

_MAX_PADDED = 2**17  # tokens of a padded batch; one long sentence can make it much larger


class VariationalDropout(nn.Module):
    """Dropout with the same mask for all tokens of a sentence (Gal and Ghahramani, 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate must be from 0 to below 1, found {rate}")
        self.rate = rate

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Drop elements of padded sentences, in training only."""
        if not self.training or not self.rate:
            return x
        mask = functional.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), self.rate)
        return x * mask

    def forward_packed(
        self, x: Float[Tensor, "S D"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "S D"]:
        """Drop elements of packed sentences of these lengths."""
        if not self.training or not self.rate:
            return x
        mask = functional.dropout(x.new_ones(len(lengths), x.shape[1]), self.rate)
        return x * mask.repeat_interleave(lengths.to(x.device), dim=0, output_size=len(x))


class BiRNN(nn.Module):
    """Bidirectional recurrent layers, with variational dropout between them.

    The output is zero after the end of a sentence, and padding does not change it.
    """

    layer_class: ClassVar[type[nn.LSTM] | type[nn.GRU]]

    def __init__(
        self, input_dim: int, hidden_dim: int, num_layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.output_dim = 2 * hidden_dim
        self.layers = nn.ModuleList(
            self.layer_class(
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
        """Encode padded sentences."""
        if x.is_cuda and 0 < mask.numel() <= _MAX_PADDED:
            return self._forward_padded(x, mask)
        lengths = mask.sum(dim=1).cpu()
        index = (torch.arange(mask.shape[1]) < lengths[:, None]).flatten().nonzero().flatten()
        index = index.to(x.device)
        packed = self.forward_packed(x.flatten(0, 1).index_select(0, index), lengths)
        return pad_packed(packed, index, mask.shape)

    def _forward_padded(
        self, x: Float[Tensor, "B T I"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T O"]:
        """Run padded rows without packing, which is slow on a GPU, twice in one batch.

        A direction must see a sentence before its padding. So the forward direction is taken from
        sentences aligned to the left, the backward one from sentences aligned to the right.
        """
        num_rows, width = mask.shape
        step = torch.arange(width, device=mask.device)
        padding = width - mask.sum(dim=1, keepdim=True)
        first = width * torch.arange(num_rows, device=mask.device)[:, None]
        to_right = (first + (step - padding).clamp(min=0)).flatten()
        to_left = (first + (step + padding).clamp(max=width - 1)).flatten()
        for number, layer in enumerate(self.layers):
            if number:
                x = self.dropout(x)
            left, right = layer(torch.cat([x, gather_tokens(x, to_right)]))[0].chunk(2)
            forward, _ = left.chunk(2, dim=2)
            _, backward = right.chunk(2, dim=2)
            x = torch.cat([forward, gather_tokens(backward, to_left)], dim=2)
        return x.masked_fill(~mask[:, :, None], 0.0)

    def forward_packed(
        self, x: Float[Tensor, "S I"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "S O"]:
        """Encode packed sentences of these lengths, which are on the CPU."""
        if not len(x):
            return x.new_zeros(0, self.output_dim)
        order, sizes = _packed_order(lengths)
        order = order.to(x.device)
        for number, layer in enumerate(self.layers):
            if number:
                x = self.dropout.forward_packed(x, lengths)
            output = layer(PackedSequence(x.index_select(0, order), sizes))[0].data
            x = torch.empty_like(output).index_copy(0, order, output)
        return x


class BiLSTM(BiRNN):
    """Bidirectional LSTM layers."""

    layer_class = nn.LSTM


class BiGRU(BiRNN):
    """Bidirectional GRU layers (Cho et al., 2014)."""

    layer_class = nn.GRU


def gather_tokens(
    x: Float[Tensor, "B T D"], flat_index: Int[Tensor, " BT"]
) -> Float[Tensor, "B T D"]:
    """Permute tokens: position i of the flattened result is position flat_index[i] of `x`."""
    return x.flatten(0, 1).index_select(0, flat_index).view_as(x)


def pad_packed(
    tokens: Float[Tensor, "S D"], flat_index: Int[Tensor, " S"], shape: torch.Size
) -> Float[Tensor, "B T D"]:
    """Pad packed tokens with zeros; `flat_index` has their positions in the flattened rows."""
    padded = tokens.new_zeros(shape.numel(), tokens.shape[1])
    return padded.index_copy(0, flat_index, tokens).unflatten(0, shape)


def _packed_order(lengths: Int[Tensor, " B"]) -> tuple[Int[Tensor, " S"], Int[Tensor, " T"]]:
    """Return the order of tokens in a PackedSequence, and its batch sizes."""
    rank = torch.empty_like(lengths)
    rank[lengths.argsort(descending=True, stable=True)] = torch.arange(len(lengths))
    starts = lengths.cumsum(0) - lengths
    step = torch.arange(int(lengths.sum())) - starts.repeat_interleave(lengths)
    order = (step * len(lengths) + rank.repeat_interleave(lengths)).argsort()
    return order, step.bincount()


class CharEncoder(CharCNN):
    """A small character CNN over ELMo's byte alphabet.

    The default widths are those of the NER model of Peters et al. (2018).
    """

    def __init__(
        self,
        embedding_dim: int = 16,
        num_filters: int = 128,
        widths: tuple[int, ...] = (3,),
        max_characters: int = 50,
    ) -> None:
        super().__init__(
            CharCNNConfig(
                embedding_dim=embedding_dim,
                filters=tuple((width, num_filters) for width in widths),
                max_characters=max_characters,
                num_highways=0,
            )
        )
        self.output_dim = num_filters * len(widths)
