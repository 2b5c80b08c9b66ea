"""What embedding returns: the choice of layers, and the tokens of a text with their vectors.

Shapes: L layers (the token layer is one of them), T tokens, D width of one direction, S spans.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from jaxtyping import Float

from elmore.embed.alignment import pool_to_spans
from elmore.embed.device import Array
from elmore.embed.sentence_layers import SentenceLayers
from elmore.embed.tokenized import TokenizedText
from elmore.errors import ConfigError, DataError
from elmore.model.saved_mix import SavedMix
from elmore.model.state import BACKWARD, BOTH, FORWARD
from elmore.weights.whitening import Whitening

LayerChoice = Literal["average", "all", "top", "cloze", "whitened"] | int | SavedMix | Whitening
LayerChoices = LayerChoice | list[LayerChoice]
"""One choice, or a list of them, whose vectors are stacked."""
NAMES = ("average", "all", "top", "cloze", "whitened")
Direction = Literal["both", "forward", "backward"]
DType = Literal["float32", "float16"]
DTYPES = ("float32", "float16")
_DIRECTIONS = {"both": BOTH, "forward": (FORWARD,), "backward": (BACKWARD,)}


@dataclass(frozen=True)
class EmbeddedText:
    """The tokens of one text and their vectors."""

    tokens: list[str]
    vectors: Float[np.ndarray, "*L T 2*D"]
    """(tokens, width); with layers="all", or a list of layers, (layers, tokens, width)."""
    offsets: list[tuple[int, int]] | None = None
    """Start and end of each token in the string, when a string was given."""
    cells: Float[np.ndarray, "L-1 T H"] | None = None
    """Memory cells (LSTM layers, tokens, cell width) in float32, when asked for."""

    def __repr__(self) -> str:
        words = " ".join(self.tokens)
        shown = words if len(words) <= 60 else f"{words[:57]}..."
        return f"<EmbeddedText {shown!r}: {self.vectors.dtype} {self.vectors.shape}>"

    def pool_to_spans(self, spans: Sequence[tuple[int, int]]) -> Float[np.ndarray, "*L S 2*D"]:
        """Return vectors for another tokenisation of the same string.

        The vector of a span is the mean of the tokens that it overlaps, weighted by the number of
        characters they share.

        Args:
            spans: Start and end of each token of the other tokenisation, in characters.

        Returns:
            One vector per span; zeros for a span that overlaps no token.

        Raises:
            DataError: There are no offsets, or a span is impossible.
        """
        if self.offsets is None:
            raise DataError(
                "there is nothing to align with: tokens were given, or the tokenizer rewrote them"
            )
        return pool_to_spans(self.offsets, self.vectors, spans)


def join_segments(
    text: TokenizedText,
    arrays: Sequence[Float[np.ndarray, "*L T 2*D"]],
    empty: Float[np.ndarray, "*L 0 2*D"],
) -> EmbeddedText:
    """Join the vectors of a text's segments, in memory of their own; `empty` is for no segment."""
    one = len(arrays) == 1
    vectors = arrays[0].copy() if one else np.concatenate([empty, *arrays], axis=-2)
    return EmbeddedText(text.words, vectors, text.offsets)


def parse_layers(name: str) -> LayerChoice:
    """Parse a choice of layers as it is written on a command line."""
    if name in NAMES:
        return cast("LayerChoice", name)
    if name.isdecimal():
        return int(name)
    raise ConfigError(f"layers {name!r}: expected {', '.join(NAMES)} or a number")


def parse_direction(direction: Direction, layers: LayerChoices) -> tuple[int, ...]:
    """Return the directions of a name, forward first.

    Raises:
        ConfigError: There is no such direction, or these layers need the other one, too.
    """
    if direction not in _DIRECTIONS:
        raise ConfigError(f"direction must be 'both', 'forward' or 'backward', found {direction!r}")
    for choice in layers if isinstance(layers, list) else [layers]:
        needs_both = choice in ("cloze", "whitened") or isinstance(choice, Whitening)
        if direction != "both" and needs_both:
            raise ConfigError(
                f"layers={choice!r} needs both directions, found {direction!r} alone; choose other "
                "layers"
            )
    return _DIRECTIONS[direction]


def check_layers(layers: LayerChoice, num_layers: int) -> None:
    """Raise ConfigError if a model with that many layers cannot return these."""
    if isinstance(layers, SavedMix):
        if len(layers.weights) != num_layers:
            raise ConfigError(
                f"this mix has {len(layers.weights)} weights, the model {num_layers} layers"
            )
    elif isinstance(layers, Whitening):
        for name in layers.layers:
            check_layers(parse_layers(name), num_layers)
    elif isinstance(layers, int | np.integer) and not isinstance(layers, bool):
        if not 0 <= layers < num_layers:
            raise ConfigError(f"layers={layers}: this model has layers 0 to {num_layers - 1}")
    elif not isinstance(layers, str) or layers not in NAMES:
        names = ", ".join(map(repr, NAMES))
        raise ConfigError(
            f"layers={layers!r}: expected {names}, a number, a saved mix or a whitening"
        )


def resolve_layers(
    layers: LayerChoices, num_layers: int, whitening: Whitening | None
) -> LayerChoices:
    """Return the layers with the whitening of the model in place of its name.

    Raises:
        ConfigError: A model with that many layers and this whitening cannot return them.
    """
    if isinstance(layers, list):
        if not layers or "all" in layers:
            raise ConfigError(f"layers={layers!r}: name each layer of a list, without 'all'")
        return [_resolve_layer(choice, num_layers, whitening) for choice in layers]
    return _resolve_layer(layers, num_layers, whitening)


def _resolve_layer(
    layers: LayerChoice, num_layers: int, whitening: Whitening | None
) -> LayerChoice:
    check_layers(layers, num_layers)
    return find_whitening(whitening) if layers == "whitened" else layers


def layers_for_occurrences(whitening: Whitening | None) -> str:
    """Return the layers whose cosines compare two occurrences best.

    The whitening of a model, if it has one: benchmarks/whitening.py compares it with the top layer.
    """
    return "top" if whitening is None else "whitened"


def find_whitening(whitening: Whitening | None) -> Whitening:
    """Return the whitening of a model, or raise ConfigError if it has none."""
    if whitening is None:
        raise ConfigError(
            "layers='whitened': this model has no whitening; learn one with "
            "elmore.embed.whitening, or pass other layers"
        )
    return whitening


def select_layers(
    sentences: SentenceLayers, layers: LayerChoices
) -> Float[Array, "T 2*D"] | Float[Array, "L T 2*D"]:
    """Return one vector per token, or with "all" and for a list a stack of them."""
    if isinstance(layers, list):
        chosen = [select_layers(sentences, choice)[None] for choice in layers]
        return sentences.device.concatenate(chosen, axis=0)
    if isinstance(layers, SavedMix):
        return layers.mix(sentences.states)
    if isinstance(layers, Whitening):
        if layers.width != sentences.states.shape[-1]:
            raise ConfigError(
                f"layers={layers!r}: expected layers of {layers.width} numbers, found "
                f"{sentences.states.shape[-1]}; pass a whitening of this model"
            )
        parts = [select_layers(sentences, parse_layers(name)) for name in layers.layers]
        return sentences.device.whiten(sentences.device.concatenate(parts, axis=1), layers)
    if layers == "all":
        return sentences.states
    if layers == "average":
        return sentences.states.mean(0)
    if layers == "cloze":
        return sentences.cloze()
    return sentences.states[-1 if layers == "top" else layers]


def layer_selector(layers: LayerChoices, dtype: DType) -> Callable[[SentenceLayers], Array]:
    """Return a function from all layers to the chosen ones, in the type that is returned.

    Raises:
        ConfigError: There is no such type.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype must be 'float32' or 'float16', found {dtype!r}")
    return lambda sentences: convert(select_layers(sentences, layers), dtype)


def convert(vectors: Float[Array, "..."], dtype: DType) -> Float[Array, "..."]:
    """Return vectors as numbers of a type."""
    if isinstance(vectors, np.ndarray):
        return vectors.astype(dtype, copy=False)
    return vectors.half() if dtype == "float16" else vectors.float()


def to_host(vectors: Float[Array, "..."]) -> Float[np.ndarray, "..."]:
    """Return vectors as an array of numpy."""
    return vectors if isinstance(vectors, np.ndarray) else vectors.cpu().numpy()


def empty_vectors(
    layers: LayerChoices, num_layers: int, width: int, dtype: DType
) -> Float[np.ndarray, "*L 0 2*D"]:
    """Return the vectors of a text without words."""
    stacked = num_layers if layers == "all" else len(layers) if isinstance(layers, list) else None
    return np.zeros((0, width) if stacked is None else (stacked, 0, width), dtype)
