"""Characters to one vector per word (Kim et al., 2016): convolutions, max over time, highways.

    y = highways(activation(max over positions of (conv_w * characters)))   for each width w

Shapes: N words, C characters, E character width, F filters.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.model.config import CharCNNConfig
from elmore.model.highway import Highway

_BLOCK = {"cpu": 1024, "cuda": 16384}  # words at a time: bounds the memory, changes no value


class CharCNN(nn.Module):
    """Spelled words to vectors, each word on its own.

    The columns given may stop after the longest word: padding up to the full width is understood.
    Windows of padding alone take part in the maximum, as they did in training. They are all equal,
    so one is enough: `longest word + widest filter` columns give the same maxima as the full width.
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
        self.activation = torch.relu if config.activation == "relu" else torch.tanh
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new characters and filters, as in the original training."""
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
        """Encode words, in blocks."""
        config = self.config
        full = min(config.max_characters, characters.shape[1] + config.widest_filter)
        characters = functional.pad(
            characters, (0, full - characters.shape[1]), value=config.padding_id
        )
        blocks = characters.split(_BLOCK.get(characters.device.type, 1024))
        return torch.cat([self._encode(block) for block in blocks])

    def _encode(self, characters: Int[Tensor, "N C"]) -> Float[Tensor, "N F"]:
        spelled = self.embedding(characters)  # (N, C, E)
        words = torch.cat([_pooled(spelled, filters) for filters in self.convolutions], dim=1)
        words = self.activation(words)
        for highway in self.highways:
            words = highway(words)
        return words


def _pooled(spelled: Float[Tensor, "N C E"], filters: nn.Module) -> Float[Tensor, "N n"]:
    """Give the maximum of each filter over a word.

    A convolution is a product with every window of letters. So few channels are quicker that way,
    forth and back, than by a convolution's own kernels, on a CPU and on a GPU.
    """
    assert isinstance(filters, nn.Conv1d)
    assert filters.bias is not None
    windows = spelled.unfold(1, filters.kernel_size[0], 1).flatten(2)  # (N, positions, E * width)
    found = functional.linear(windows, filters.weight.flatten(1))
    # Where nothing is learned the place of a maximum is not asked for, which is quicker.
    largest = found.max(dim=1).values if found.requires_grad else found.amax(dim=1)
    return largest + filters.bias
