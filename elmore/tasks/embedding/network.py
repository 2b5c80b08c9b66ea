"""The bottom of every task network: a batch of sentences to one vector per token.

The vector of a token concatenates, as embedder and recipe ask, a word vector (pretrained or
learned), the output of a character CNN, and a learned mix of a biLM's layers. A second mix can be
concatenated to the output of the task's encoder (Peters et al., 2018, section 3.3).

Shapes: B sentences, T tokens of the longest, S tokens of all, N distinct words, V words, L layers,
D width, E width of the mix at the output.
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
from elmore.tasks.data.encode import EncodedBatch
from elmore.tasks.layers.encoders import CharEncoder, pad_packed


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """Word vectors."""

    dim: int = 50
    """Width of learned vectors; those of a file have their own."""
    min_count: int = 2
    """How often a word must occur in the training text to get a learned vector."""
    dropout: float = 0.1
    """Fraction of words replaced by the unknown word in training, for learned vectors only."""
    freeze: bool = True
    """Do not train the vectors of a file."""

    def __post_init__(self) -> None:
        if self.dim < 1 or self.min_count < 1 or not 0 <= self.dropout < 1:
            raise ConfigError(
                "words.dim and words.min_count must be at least 1 and words.dropout from 0 to "
                f"below 1, found {self.dim}, {self.min_count} and {self.dropout}"
            )


@dataclass(frozen=True, kw_only=True)
class CharactersConfig:
    """A small character CNN, trained with the task."""

    embedding_dim: int = 16
    num_filters: int = 128
    """Filters of each width."""
    widths: tuple[int, ...] = (3,)

    def __post_init__(self) -> None:
        valid = self.widths and all(1 <= width <= 50 for width in self.widths)
        if min(self.embedding_dim, self.num_filters) < 1 or not valid:
            raise ConfigError(
                "characters: embedding_dim and num_filters must be at least 1 and widths from 1 to "
                f"50, found {self.embedding_dim}, {self.num_filters} and {self.widths}"
            )


@dataclass(frozen=True, kw_only=True)
class ElmoConfig:
    """Where and how the layers of a biLM are mixed in."""

    insert_at: Literal["input", "output", "both"] = "input"
    """At the input or the output of the task's encoder, or both."""
    dropout: float = 0.5
    layer_norm: bool = False
    """Normalise each layer's vectors before mixing."""
    last_only: bool = False
    """Use the top layer alone instead of a mix of all layers."""
    penalty: float = 0.001
    """The paper's lambda: a large value keeps the mix close to the average."""
    learn_gamma: bool = True
    """Learn the scale of the mix; false: it stays 1."""
    freeze: bool = True
    """Do not train the biLM."""

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1 or self.penalty < 0:
            raise ConfigError(
                f"elmo.dropout must be from 0 to below 1 and elmo.penalty not negative, found "
                f"{self.dropout} and {self.penalty}"
            )


class PaddedTokens(NamedTuple):
    """What most heads get: one row per sentence, zero where the mask is false."""

    vectors: Float[Tensor, "B T D"]
    mask: Bool[Tensor, "B T"]
    output_elmo: Float[Tensor, "B T E"]
    """To be concatenated to the output of the task's encoder; E is 0 without a mix there."""


class PackedTokens(NamedTuple):
    """The same without padding: the tokens of all sentences one after another."""

    vectors: Float[Tensor, "S D"]
    mask: Bool[Tensor, "B T"]
    output_elmo: Float[Tensor, "S E"]
    flat_index: Int[Tensor, " S"]
    """Position of each token in the flattened mask."""

    def to_padded(self) -> PaddedTokens:
        """Pad each sentence to the length of the longest."""
        vectors, output_elmo = (
            pad_packed(part, self.flat_index, self.mask.shape)
            for part in (self.vectors, self.output_elmo)
        )
        return PaddedTokens(vectors, self.mask, output_elmo)


class Widths(NamedTuple):
    """Widths D and E of the vectors that a head gets."""

    input: int
    output: int = 0


class LayerWeights(NamedTuple):
    """The numbers of a scalar mix."""

    weights: list[float]
    """Softmax-normalised weight of each layer."""
    gamma: float


class WordTable(nn.Module):
    """A vector for each known word, and a learned one for unknown words.

    A frozen table is not part of the state dict: checkpoints keep one copy of the file's vectors.
    """

    vectors: Tensor
    rows_are_lookups = True  # for optimizers: a row is the vector of one word

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
        """Look up words; -1 is an unknown word."""
        known = ids >= 0
        if self.training and self.dropout:
            known = known & (torch.rand(ids.shape, device=ids.device) >= self.dropout)
        vectors = functional.embedding(ids.clamp(min=0), self.vectors)
        return torch.where(known[:, None], vectors, self.unknown)


class BiLMLayers(nn.Module):
    """The layers of a biLM: cached ones, or those of a copy of the biLM that is fine-tuned."""

    def __init__(self, elmo: Embedder, *, freeze: bool) -> None:
        super().__init__()
        self._tuned: Embedder | None = None
        if not freeze:
            self._tuned = copy.deepcopy(elmo)
            self.bilm = self._tuned.bundle.model.requires_grad_(True)

    def forward(self, batch: EncodedBatch) -> Float[Tensor, "L S D"]:
        """Return the layers of each token."""
        if self._tuned is not None:
            stack = self._tuned.run(batch.sentences, training=self.bilm.training)
            states = stack.without_boundaries().states
            return states.flatten(1, 2).index_select(1, batch.flat_index)
        assert batch.layers is not None
        return batch.layers


class LayerMix(nn.Module):
    """A learned mix of the layers, with the recipe's dropout and penalty."""

    def __init__(self, config: ElmoConfig, num_layers: int) -> None:
        super().__init__()
        self.mix = ScalarMix(
            num_layers,
            layer_norm="token" if config.layer_norm else False,
            last_only=config.last_only,
        )
        self.mix.gamma.requires_grad_(config.learn_gamma)
        self.dropout = nn.Dropout(config.dropout)
        self.strength = config.penalty

    def forward(self, layers: Float[Tensor, "L S D"]) -> Float[Tensor, "S D"]:
        """Mix the layers of each token."""
        one_row = layers[:, None].to(self.mix.gamma.dtype)  # (L, 1, S, D)
        return self.dropout(self.mix(one_row).squeeze(0))

    def penalty(self) -> Float[Tensor, ""]:
        """Return lambda * sum(w^2) over the weights of the mix."""
        return self.mix.penalty(self.strength)

    def layer_weights(self) -> LayerWeights:
        """Return the current weights."""
        return LayerWeights(self.mix.normalized_weights().tolist(), self.mix.gamma.item())


class Embedding(nn.Module):
    """Word vectors, character CNN and mixed layers, concatenated."""

    def __init__(
        self,
        words: WordTable | None,
        characters: CharEncoder | None,
        elmo: Embedder | None,
        config: ElmoConfig,
    ) -> None:
        super().__init__()
        self.words, self.characters = words, characters
        self.layers = None if elmo is None else BiLMLayers(elmo, freeze=config.freeze)
        at = config.insert_at
        positions = ("input", "output") if at == "both" else (at,)
        self.mixes = nn.ModuleDict(
            {position: LayerMix(config, elmo.num_layers) for position in positions} if elmo else {}
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
                "the network has no input: elmo.insert_at puts the biLM at the output alone; add "
                'word vectors, as in glove:FILE+elmo:MODEL, or set elmo.insert_at to "both"'
            )

    def forward(self, batch: EncodedBatch) -> PackedTokens:
        """Return the vectors of each token."""
        parts = []
        if self.words is not None:
            assert batch.words is not None
            parts.append(self.words(batch.words))
        if self.characters is not None:
            assert batch.index is not None
            assert batch.characters is not None
            parts.append(functional.embedding(batch.index, self.characters(batch.characters)))
        mixed: dict[str, Tensor] = {}
        if self.layers is not None:
            layers = self.layers(batch)
            mixed = {position: mix(layers) for position, mix in self.mixes.items()}
        parts += [mixed["input"]] if "input" in mixed else []
        vectors = torch.cat(parts, dim=-1)
        output_elmo = mixed.get("output", vectors[:, :0])
        return PackedTokens(vectors, batch.mask, output_elmo, batch.flat_index)

    def penalty(self) -> Float[Tensor, ""] | int:
        """Return the penalty to add to the loss once per update."""
        return sum(mix.penalty() for mix in self._mixes().values())

    def layer_weights(self) -> dict[str, LayerWeights]:
        """Return the current weights of the biLM's layers, at `input`, `output` or both."""
        return {position: mix.layer_weights() for position, mix in self._mixes().items()}

    def _mixes(self) -> dict[str, LayerMix]:
        return {position: mix for position, mix in self.mixes.items() if isinstance(mix, LayerMix)}
