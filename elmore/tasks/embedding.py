"""The bottom of every task model: a batch of sentences to one vector per token.

Side by side stand, as the embedder and the recipe have it, a word vector (ready-made or learned), a
vector of the word's characters, and a learned mix of a biLM's layers.

Shapes: B sentences, T tokens, N distinct words, V words, L layers, D width.
"""

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError
from elmore.model.mix import ScalarMix
from elmore.tasks.layers.encoders import CharEncoder
from elmore.tasks.reading import Read


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """Word vectors."""

    dim: int = 50
    """Of learned ones; those of a file have their own width."""
    min_count: int = 2
    """A word of the training text gets a vector of its own from here on."""
    dropout: float = 0.1
    """Share of the words taken for unknown in training, where vectors are learned from nothing."""
    freeze: bool = True
    """Vectors of a file stay as they are."""

    def __post_init__(self) -> None:
        if self.dim < 1 or self.min_count < 1 or not 0 <= self.dropout < 1:
            raise ConfigError(
                "words.dim and words.min_count must be at least 1 and words.dropout from 0 to "
                f"below 1, found {self.dim}, {self.min_count} and {self.dropout}"
            )


@dataclass(frozen=True, kw_only=True)
class CharactersConfig:
    """A small convolution over the characters of each word, learned with the task."""

    embedding_dim: int = 16
    num_filters: int = 128
    width: int = 3

    def __post_init__(self) -> None:
        if min(self.embedding_dim, self.num_filters, self.width) < 1 or self.width > 50:
            raise ConfigError(
                "characters: embedding_dim and num_filters must be at least 1 and width from 1 to "
                f"50, found {self.embedding_dim}, {self.num_filters} and {self.width}"
            )


@dataclass(frozen=True, kw_only=True)
class ElmoConfig:
    """How a biLM's layers come in."""

    dropout: float = 0.5
    layer_norm: bool = False
    """Even each layer's vector out before mixing."""
    last_only: bool = False
    """The top layer alone instead of a mix of all."""
    penalty: float = 0.001
    """The paper's lambda: a strong one keeps the mix at the plain average."""
    freeze: bool = True
    """Without, the biLM is trained with the task."""

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1 or self.penalty < 0:
            raise ConfigError(
                f"elmo.dropout must be from 0 to below 1 and elmo.penalty not negative, found "
                f"{self.dropout} and {self.penalty}"
            )


class Embedded(NamedTuple):
    """What a task model works on: zero where the mask is false.

    Whatever else of the embedder a model may want, above its encoder say, has its place here.
    """

    vectors: Float[Tensor, "B T D"]
    mask: Bool[Tensor, "B T"]


class Shares(NamedTuple):
    """A mix in numbers one can print."""

    shares: list[float]
    """Of each layer; they sum to one."""
    gamma: float


class WordTable(nn.Module):
    """A vector per known word, learned or frozen, and a learned one for all others.

    A frozen table comes from a file and does not go into another: it is no part of the state.
    """

    vectors: Tensor

    def __init__(self, vectors: Float[Tensor, "V D"], *, freeze: bool, dropout: float) -> None:
        super().__init__()
        if freeze:
            self.register_buffer("vectors", vectors, persistent=False)
        else:
            self.vectors = nn.Parameter(vectors)
        self.unknown = nn.Parameter(torch.zeros(vectors.shape[1]))
        self.dropout = dropout
        self.width = vectors.shape[1]

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Look words up; -1 is unknown."""
        known = ids >= 0
        if self.training and self.dropout:
            known = known & (torch.rand(ids.shape, device=ids.device) >= self.dropout)
        found = functional.embedding(ids.clamp(min=0), self.vectors)
        return torch.where(known[:, :, None], found, self.unknown)


class ElmoMix(nn.Module):
    """A learned mix of a biLM's layers: of cached ones, or of a copy that is trained along."""

    def __init__(self, config: ElmoConfig, elmo: Embedder) -> None:
        super().__init__()
        self.mix = ScalarMix(
            elmo.num_layers,
            layer_norm="token" if config.layer_norm else False,
            last_only=config.last_only,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.strength = config.penalty
        self.width = elmo.width
        self._tuned: Embedder | None = None
        if not config.freeze:
            self._tuned = copy.deepcopy(elmo)
            self.bilm = self._tuned.bundle.model.requires_grad_(True)

    def forward(self, read: Read) -> Float[Tensor, "B T D"]:
        """Mix the layers of a batch."""
        if self._tuned is not None:
            layers = self._tuned.run(read.sentences).without_boundaries().states
        else:
            assert read.layers is not None
            layers = read.layers.to(self.mix.gamma.dtype)
        return self.dropout(self.mix(layers))

    def penalty(self) -> Float[Tensor, ""]:
        """Give lambda * sum(w^2) over the weights of the mix."""
        return self.mix.penalty(self.strength)


class Embedding(nn.Module):
    """Words, characters and layers side by side."""

    def __init__(
        self, words: WordTable | None, characters: CharEncoder | None, elmo: ElmoMix | None
    ) -> None:
        super().__init__()
        self.words, self.characters, self.elmo = words, characters, elmo
        self.width = sum(
            [
                words.width if words else 0,
                characters.output_dim if characters else 0,
                elmo.width if elmo else 0,
            ]
        )

    def forward(self, read: Read) -> Embedded:
        """Give a vector per token."""
        parts = []
        if self.words is not None:
            assert read.words is not None
            parts.append(self.words(read.words))
        if self.characters is not None:
            assert read.index is not None
            assert read.characters is not None
            parts.append(functional.embedding(read.index, self.characters(read.characters)))
        if self.elmo is not None:
            parts.append(self.elmo(read))
        return Embedded(torch.cat(parts, dim=-1) * read.mask[:, :, None], read.mask)

    def penalty(self) -> Float[Tensor, ""] | float:
        """Give what is added to the loss of an update, whatever its size."""
        return self.elmo.penalty() if self.elmo is not None else 0.0

    def shares(self) -> Shares | None:
        """Say what the layers of the biLM weigh now; None without one."""
        if self.elmo is None:
            return None
        return Shares(self.elmo.mix.shares().tolist(), self.elmo.mix.gamma.item())
