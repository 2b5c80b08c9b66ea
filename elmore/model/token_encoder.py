"""Context-free word vectors: a character CNN, a word embedding table, or both concatenated.

Shapes: N words, C characters, D output width.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from elmore.model.char_cnn import CharCNN
from elmore.model.config import BiLMConfig
from elmore.model.linear import Linear
from elmore.model.native_bilm import NativeTokenEncoder


class TokenEncoder(nn.Module):
    """The input layer of the LSTMs: [word embedding ; character CNN], then a projection."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.words = (
            nn.Embedding(config.words.num_words, config.words.dim) if config.words else None
        )
        self.characters = CharCNN(config.characters) if config.characters else None
        self.projection = (
            Linear(config.token_dim, config.lstm.output_dim) if config.projection else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the projection as in the original training."""
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=self.projection.in_features**-0.5)
            nn.init.zeros_(self.projection.bias)

    def forward(
        self, characters: Int[Tensor, "N C"] | None, words: Int[Tensor, " N"] | None
    ) -> Float[Tensor, "N D"]:
        """Encode distinct words from the ids this model uses: characters, words or both."""
        parts = []
        if self.words is not None:
            assert words is not None, "this model embeds words and was given no word ids"
            parts.append(self.words(words))
        if self.characters is not None:
            assert characters is not None, "this model reads characters and was given none"
            parts.append(self.characters(characters))
        vectors = torch.cat(parts, dim=1)
        return vectors if self.projection is None else self.projection(vectors)

    def pack(self) -> NativeTokenEncoder:
        """Return the encoder for the native library."""
        return NativeTokenEncoder(
            None if self.words is None else self.words.weight.detach().numpy(),
            None if self.characters is None else self.characters.pack(),
            None if self.projection is None else self.projection.pack(),
        )
