"""The configuration of a biLM and of its softmax. The defaults are those of the original ELMo."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from elmore.errors import ConfigError, DataError

Precision = Literal["exact", "fast"]
"""Of inference: "exact" is that of the weights; "fast" is int8 or bf16, where supported."""

_MAX_FLOAT32 = 3.4028234663852886e38
_LARGEST = 10**9  # far above any size, and near the limit of torch
_MOST_SAMPLES = 2**20  # more would take gigabytes, and longer than the full softmax


def _positive(section: str, **values: int) -> None:
    for name, value in values.items():
        if not 1 <= value <= _LARGEST:
            raise ConfigError(f"{section}.{name} must be between 1 and {_LARGEST}, found {value}")


@dataclass(frozen=True, kw_only=True)
class CharCNNConfig:
    """The character CNN (Kim et al., 2016)."""

    num_ids: int = 261
    """Rows of the character embedding."""
    padding_id: int = 260
    """The id that pads a word to its full width; its embedding is trained like any other."""
    max_characters: int = 50
    """C: ids of a full word, including the two boundary ids."""
    embedding_dim: int = 16
    """E: width of a character vector."""
    filters: tuple[tuple[int, int], ...] = (
        (1, 32),
        (2, 32),
        (3, 64),
        (4, 128),
        (5, 256),
        (6, 512),
        (7, 1024),
    )
    """(width, count) of each convolution; F is the sum of the counts."""
    activation: Literal["relu", "tanh"] = "relu"
    num_highways: int = 2

    def __post_init__(self) -> None:
        _positive("characters", num_ids=self.num_ids, embedding_dim=self.embedding_dim)
        sizes = [size for pair in self.filters for size in pair]
        if not sizes or min(sizes) < 1 or max(sizes) > _LARGEST:
            raise ConfigError(
                f"characters.filters must be [width, count] pairs of at least 1, found "
                f"{[list(pair) for pair in self.filters]}"
            )
        if self.activation not in ("relu", "tanh"):
            raise ConfigError(
                f"characters.activation must be 'relu' or 'tanh', found {self.activation!r}"
            )
        if not 0 <= self.num_highways <= 100:
            raise ConfigError(
                f"characters.num_highways must be between 0 and 100, found {self.num_highways}"
            )
        if self.max_characters < max(3, self.widest_filter):
            raise ConfigError(
                f"characters.max_characters ({self.max_characters}) must hold two marks and one "
                f"character, and the widest filter ({self.widest_filter})"
            )
        if not 0 <= self.padding_id < self.num_ids:
            raise ConfigError(
                f"characters.padding_id ({self.padding_id}) must be below characters.num_ids "
                f"({self.num_ids})"
            )

    def padded_width(self, width: int) -> int:
        """Return the number of columns that character ids are padded to.

        Args:
            width: Number of columns of the ids: of the longest word, or more.

        Raises:
            DataError: There are more columns than the model reads.
        """
        if width > self.max_characters:
            raise DataError(
                f"character ids have {width} columns, the model reads at most "
                f"{self.max_characters} (characters.max_characters); encode words with its alphabet"
            )
        return min(self.max_characters, width + self.widest_filter)

    @property
    def num_filters(self) -> int:
        """F: width of a word after the convolutions."""
        return sum(count for _, count in self.filters)

    @property
    def widest_filter(self) -> int:
        """Width of the widest filter, in characters."""
        return max(width for width, _ in self.filters)


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """A word embedding: of vocabulary models, and the word half of ELMoForManyLangs."""

    num_words: int
    dim: int

    def __post_init__(self) -> None:
        _positive("words", num_words=self.num_words, dim=self.dim)


@dataclass(frozen=True, kw_only=True)
class LSTMConfig:
    """One direction of the recurrent stack (Jozefowicz et al., 2016)."""

    num_layers: int = 2
    cell_dim: int = 4096
    """H: width of the memory cell."""
    output_dim: int = 512
    """D: width of the projected state and of the input, half of an ELMo vector."""
    projection: bool = True
    """Without it the output is as wide as the cell, and `output_clip` is unused."""
    cell_clip: float | None = 3.0
    """Clamp the memory cell to [-cell_clip, cell_clip] at each step."""
    output_clip: float | None = 3.0
    """Clamp the projected output to [-output_clip, output_clip]."""
    forget_bias: float = 1.0
    """Added to the bias of the forget gate; 0.0 where the stored bias includes it."""
    skip_connections: bool = True
    """From the second layer on, a layer adds its input to its output."""

    def __post_init__(self) -> None:
        _positive(
            "lstm", num_layers=self.num_layers, cell_dim=self.cell_dim, output_dim=self.output_dim
        )
        if self.num_layers > 100:
            raise ConfigError(f"lstm.num_layers must be at most 100, found {self.num_layers}")
        if self.output_dim > self.cell_dim:
            raise ConfigError(
                f"lstm.output_dim ({self.output_dim}) must not exceed lstm.cell_dim "
                f"({self.cell_dim}): the projection only narrows"
            )
        if not self.projection and self.output_dim != self.cell_dim:
            raise ConfigError(
                f"lstm.output_dim ({self.output_dim}) must equal lstm.cell_dim ({self.cell_dim}) "
                "when lstm.projection is false"
            )
        if not abs(self.forget_bias) <= _MAX_FLOAT32:
            raise ConfigError(
                f"lstm.forget_bias must be finite in float32, found {self.forget_bias}"
            )
        for name, clip in (("cell_clip", self.cell_clip), ("output_clip", self.output_clip)):
            if clip is not None and not 0 < clip <= _MAX_FLOAT32:
                raise ConfigError(
                    f"lstm.{name} must be above 0 and at most {_MAX_FLOAT32:.4g}, or none for no "
                    f"clip, found {clip}"
                )


@dataclass(frozen=True, kw_only=True)
class BiLMConfig:
    """A bidirectional language model over characters, words, or both."""

    characters: CharCNNConfig | None = field(default_factory=CharCNNConfig)
    words: WordsConfig | None = None
    projection: bool = True
    """Project the token vector to `lstm.output_dim`; without it the two widths must be equal."""
    lstm: LSTMConfig = field(default_factory=LSTMConfig)
    dropout: float = 0.1
    """On the input of each LSTM layer, in training."""

    def __post_init__(self) -> None:
        if self.characters is None and self.words is None:
            raise ConfigError("a model needs characters, words, or both")
        if not self.projection and self.token_dim != self.lstm.output_dim:
            raise ConfigError(
                f"token vectors are {self.token_dim} wide and lstm.output_dim is "
                f"{self.lstm.output_dim}: without projection they must be equal"
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be at least 0 and below 1: {self.dropout}")

    @property
    def token_dim(self) -> int:
        """Width of a token vector before the projection: word embedding, then filters."""
        words = self.words.dim if self.words else 0
        return words + (self.characters.num_filters if self.characters else 0)

    @property
    def num_layers(self) -> int:
        """L + 1: the token layer and the LSTM layers."""
        return self.lstm.num_layers + 1

    @property
    def width(self) -> int:
        """2D: width of an ELMo vector."""
        return 2 * self.lstm.output_dim


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig:
    """The training loss; evaluation always uses the exact softmax."""

    kind: Literal["sampled", "full", "adaptive"] = "sampled"
    num_samples: int = 8192
    """n: negatives of one call, shared by all positions."""
    unique: bool = False
    """Use TensorFlow's sampler: distinct negatives, with its correction."""
    cutoffs: tuple[int, ...] = ()
    """Adaptive: the first word of each tail, in ascending order; empty means V/20 and V/4."""
    tail_widths: tuple[int, ...] = ()
    """Adaptive: the width of each tail; empty: each is a quarter as wide as what comes before."""
    tail_bits: int = 8
    """Adaptive: bits of a stored number of the words of a tail. With 2 or 4 training rounds them as
    they are stored; with 8 it does not, and they are stored like all other weights."""
    chunk: int = 2**26
    """Logits computed at a time: bounds the memory; results differ by rounding only. On a CPU the
    training loss takes at most 2**21, which stay in its cache."""

    def __post_init__(self) -> None:
        if self.kind not in ("sampled", "full", "adaptive"):
            raise ConfigError(
                f"softmax.kind must be 'sampled', 'full' or 'adaptive', found {self.kind!r}"
            )
        for name, value, largest in (
            ("num_samples", self.num_samples, _MOST_SAMPLES),
            ("chunk", self.chunk, _LARGEST),
        ):
            if not 1 <= value <= largest:
                raise ConfigError(f"softmax.{name} must be between 1 and {largest}, found {value}")
        rising = all(a < b for a, b in pairwise((0, *self.cutoffs)))
        if not rising:
            raise ConfigError(
                f"softmax.cutoffs must rise from at least 1, found {list(self.cutoffs)}"
            )
        if self.tail_bits not in (2, 4, 8):
            raise ConfigError(f"softmax.tail_bits must be 2, 4 or 8, found {self.tail_bits}")
