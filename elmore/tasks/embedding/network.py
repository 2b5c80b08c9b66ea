"""The bottom of every task model: a batch of sentences to one vector per token.

Side by side stand, as the embedder and the recipe have it, a word vector (ready-made or learned), a
vector of the word's characters, and a learned mix of a biLM's layers. A mix of its own may also
stand above the task's encoder, beside what comes out of it.

Shapes: B sentences, T tokens of the longest, S of all, N distinct words, V words, L layers, D
width, E width above.
"""

import copy
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError
from elmore.model.mix import ScalarMix
from elmore.tasks.data.encode import Read
from elmore.tasks.layers.encoders import CharEncoder, laid_out


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

    where: Literal["input", "output", "both"] = "input"
    """Beside the word vectors, beside what the task's encoder makes of them, or both."""
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
    """What most task models work on, sentences side by side: zero where the mask is false."""

    vectors: Float[Tensor, "B T D"]
    mask: Bool[Tensor, "B T"]
    above: Float[Tensor, "B T E"]
    """To stand beside what comes out of the task's encoder; E is 0 where nothing is to."""


class Tokens(NamedTuple):
    """The same with one token after another, and nothing where none is."""

    vectors: Float[Tensor, "S D"]
    mask: Bool[Tensor, "B T"]
    above: Float[Tensor, "S E"]
    places: Int[Tensor, " S"]
    """Where they are in the mask, counted through row by row."""

    def side_by_side(self) -> Embedded:
        """Lay sentences out in rows as long as the longest."""
        vectors, above = (
            laid_out(part, self.places, self.mask.shape) for part in (self.vectors, self.above)
        )
        return Embedded(vectors, self.mask, above)


class Widths(NamedTuple):
    """Of the vectors that a task model gets."""

    input: int
    above: int = 0


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
    rows_are_lookups = True  # for optimisers: a row is the vector of one word

    def __init__(self, vectors: Float[Tensor, "V D"], *, freeze: bool, dropout: float) -> None:
        super().__init__()
        if freeze:
            self.register_buffer("vectors", vectors, persistent=False)
        else:
            self.vectors = nn.Parameter(vectors)
        self.unknown = nn.Parameter(torch.zeros(vectors.shape[1]))
        self.dropout = dropout
        self.width = vectors.shape[1]

    def forward(self, ids: Int[Tensor, " S"]) -> Float[Tensor, "S D"]:
        """Look words up; -1 is unknown."""
        known = ids >= 0
        if self.training and self.dropout:
            known = known & (torch.rand(ids.shape, device=ids.device) >= self.dropout)
        found = functional.embedding(ids.clamp(min=0), self.vectors)
        return torch.where(known[:, None], found, self.unknown)


class Layers(nn.Module):
    """A biLM's layers: those of the cache, or of a copy of the biLM that is trained along."""

    def __init__(self, elmo: Embedder, *, freeze: bool) -> None:
        super().__init__()
        self._tuned: Embedder | None = None
        if not freeze:
            self._tuned = copy.deepcopy(elmo)
            self.bilm = self._tuned.bundle.model.requires_grad_(True)

    def forward(self, read: Read) -> Float[Tensor, "L S D"]:
        """Give the layers of a batch."""
        if self._tuned is not None:
            stack = self._tuned.run(read.sentences, training=self.bilm.training)
            states = stack.without_boundaries().states
            return states.flatten(1, 2).index_select(1, read.places)
        assert read.layers is not None
        return read.layers


class Mix(nn.Module):
    """A learned mix of layers, for one place of a task model."""

    def __init__(self, config: ElmoConfig, num_layers: int) -> None:
        super().__init__()
        self.mix = ScalarMix(
            num_layers,
            layer_norm="token" if config.layer_norm else False,
            last_only=config.last_only,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.strength = config.penalty

    def forward(self, layers: Float[Tensor, "L S D"]) -> Float[Tensor, "S D"]:
        """Mix the layers of a batch."""
        one_row = layers[:, None].to(self.mix.gamma.dtype)  # a token is mixed by itself
        return self.dropout(self.mix(one_row).squeeze(0))

    def penalty(self) -> Float[Tensor, ""]:
        """Give lambda * sum(w^2) over the weights of the mix."""
        return self.mix.penalty(self.strength)

    def shares(self) -> Shares:
        """Say what the layers weigh now."""
        return Shares(self.mix.normalized_weights().tolist(), self.mix.gamma.item())


class Embedding(nn.Module):
    """Words, characters and layers side by side."""

    def __init__(
        self,
        words: WordTable | None,
        characters: CharEncoder | None,
        elmo: Embedder | None,
        config: ElmoConfig,
    ) -> None:
        super().__init__()
        self.words, self.characters = words, characters
        self.layers = None if elmo is None else Layers(elmo, freeze=config.freeze)
        places = ("input", "output") if config.where == "both" else (config.where,)
        self.mixes = nn.ModuleDict(
            {place: Mix(config, elmo.num_layers) for place in places} if elmo else {}
        )
        mixed = dict.fromkeys(self.mixes, elmo.width) if elmo else {}
        self.widths = Widths(
            sum(
                [
                    words.width if words else 0,
                    characters.output_dim if characters else 0,
                    mixed.get("input", 0),
                ]
            ),
            mixed.get("output", 0),
        )
        if not self.widths.input:
            raise ConfigError(
                "nothing is left to read: the biLM comes in at the output alone; name word vectors "
                'beside it, as in glove:FILE+elmo:MODEL, or set elmo.where to "both"'
            )

    def forward(self, read: Read) -> Tokens:
        """Give a vector per token."""
        parts = []
        if self.words is not None:
            assert read.words is not None
            parts.append(self.words(read.words))
        if self.characters is not None:
            assert read.index is not None
            assert read.characters is not None
            parts.append(functional.embedding(read.index, self.characters(read.characters)))
        mixed: dict[str, Tensor] = {}
        if self.layers is not None:
            layers = self.layers(read)
            mixed = {place: mix(layers) for place, mix in self.mixes.items()}
        parts += [mixed["input"]] if "input" in mixed else []
        vectors = torch.cat(parts, dim=-1)
        return Tokens(vectors, read.mask, mixed.get("output", vectors[:, :0]), read.places)

    def penalty(self) -> Float[Tensor, ""] | int:
        """Give what is added to the loss of an update, whatever its size."""
        return sum(mix.penalty() for mix in self._mixes().values())

    def shares(self) -> dict[str, Shares]:
        """Say what the layers of the biLM weigh now, at each place where they come in."""
        return {place: mix.shares() for place, mix in self._mixes().items()}

    def _mixes(self) -> dict[str, Mix]:
        return {place: mix for place, mix in self.mixes.items() if isinstance(mix, Mix)}
