"""The character CNN (Kim et al., 2016): convolutions, max over time, highway layers.

    y = highways(activation(max over positions of (conv_w * characters)))   for each width w

Shapes: N words, C characters, E character width, F filters.
"""

from collections.abc import Callable
from itertools import chain

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.model.config import CharCNNConfig
from elmore.model.highway import Highway
from elmore.model.native_bilm import NativeCharCNN, NativeHighway, pack_filters
from elmore.model.packed_weights import PackedWeights, runs_natively

_BLOCK = {"cpu": 1024, "cuda": 16384}  # words at a time: bounds the memory, changes no value


class CharCNN(nn.Module):
    """Encode each word from its characters alone.

    The ids may end after the longest word: padding up to the full width is implied. Windows of
    padding alone take part in the maximum, as they did in training. They are all equal, so one is
    enough: `longest word + widest filter` columns give the same maxima as the full width.
    """

    def __init__(self, config: CharCNNConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.num_ids, config.embedding_dim)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding_dim, count, width) for width, count in config.filters
        )
        self.highways = nn.ModuleList(
            Highway(config.num_filters) for _ in range(config.num_highways)
        )
        self._packed = PackedWeights()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise embedding and filters as in the original training."""
        nn.init.uniform_(self.embedding.weight, -1, 1)
        for (width, _), convolution in zip(self.config.filters, self.convolutions, strict=True):
            assert isinstance(convolution, nn.Conv1d)
            assert convolution.bias is not None
            if self.config.activation == "relu":
                nn.init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                nn.init.normal_(convolution.weight, std=(width * self.config.embedding_dim) ** -0.5)
            nn.init.zeros_(convolution.bias)

    def forward(self, characters: Int[Tensor, "N C"]) -> Float[Tensor, "N F"]:
        """Return one vector per word."""
        if characters.numel() and runs_natively(*self.parameters()):
            return torch.from_numpy(self.pack()(characters.numpy()))
        width = characters.shape[1]
        missing = self.config.padded_width(width) - width
        characters = functional.pad(characters, (0, missing), value=self.config.padding_id)
        self._packed.clear()  # a fused optimizer may step next, which does not raise `_version`
        blocks = characters.split(_BLOCK.get(characters.device.type, 1024))
        words = torch.cat([self._convolve(block) for block in blocks])
        for highway in self.highways:
            words = highway(words)
        return words

    def pack(self) -> NativeCharCNN:
        """Return the encoder for the native library."""
        embedding = self.embedding.weight
        weights = [_weights(filters) for filters in self.convolutions]

        def make() -> NativeCharCNN:
            banks = [pack_filters(weight.detach().numpy()) for weight, _ in weights]
            bias = torch.cat([bias for _, bias in weights]).numpy()
            return NativeCharCNN(self.config, embedding.clone().numpy(), banks, bias, ())

        packed = self._packed.get("native", [embedding, *chain.from_iterable(weights)], make)
        return packed._replace(highways=[_pack_highway(highway) for highway in self.highways])

    def _convolve(self, characters: Int[Tensor, "N C"]) -> Float[Tensor, "N F"]:
        embedded = self.embedding(characters)  # (N, C, E)
        words = torch.cat([_pool(embedded, filters) for filters in self.convolutions], dim=1)
        return torch.relu(words) if self.config.activation == "relu" else torch.tanh(words)

    def _apply(self, fn: Callable, recurse: bool = True) -> "CharCNN":
        self._packed.clear()
        return super()._apply(fn, recurse)


def _weights(filters: nn.Module) -> tuple[Float[Tensor, "n E width"], Float[Tensor, " n"]]:
    """Return the filters of a convolution and their bias."""
    assert isinstance(filters, nn.Conv1d)
    assert filters.bias is not None
    return filters.weight, filters.bias


def _pack_highway(highway: nn.Module) -> NativeHighway:
    assert isinstance(highway, Highway)
    return highway.pack()


def _pool(embedded: Float[Tensor, "N C E"], filters: nn.Module) -> Float[Tensor, "N n"]:
    """Return the maximum of each filter over a word.

    A convolution is a product with every window of characters. With so few channels that is
    faster than the convolution kernels, forward and backward, on a CPU and on a GPU.
    """
    weight, bias = _weights(filters)
    windows = embedded.unfold(1, weight.shape[2], 1).flatten(2)  # (N, positions, E * width)
    products = functional.linear(windows, weight.flatten(1))
    # Without a gradient the position of the maximum is not needed, which is faster.
    largest = products.max(dim=1).values if products.requires_grad else products.amax(dim=1)
    return largest + bias
