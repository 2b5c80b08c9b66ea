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

_BLOCK = 1024  # words at a time: bounds the memory of the convolutions, changes no value


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
        return torch.cat([self._encode(block) for block in characters.split(_BLOCK)])

    def _encode(self, characters: Int[Tensor, "N C"]) -> Float[Tensor, "N F"]:
        spelled = self.embedding(characters).transpose(1, 2)  # (N, E, C)
        pooled = [convolution(spelled).amax(dim=2) for convolution in self.convolutions]
        words = self.activation(torch.cat(pooled, dim=1))
        for highway in self.highways:
            words = highway(words)
        return words
