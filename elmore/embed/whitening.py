"""Learn a whitening of joined layers from text; `weights/whitening.py` has the equation.

It is learned once, from a sample beforehand: a word's vector does not depend on other texts.

Shapes: L joined layers, T tokens, D width of a layer, W = L D.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import parse_layers
from elmore.embed.tokenized import Text
from elmore.errors import DataError
from elmore.model.native import quantize_rows
from elmore.weights.whitening import CLOZE, Whitening, check_names

NEGLIGIBLE = 1e-7  # fraction of the largest variance that is rounding error
POWER = 0.25
TOKENS_PER_NUMBER = 2  # the least tokens for each number of the joined layers


def learn(
    elmo: Embedder,
    sample: Iterable[Text],
    *,
    layers: Sequence[str] | None = None,
    power: float = POWER,
    split_sentences: bool = False,
    origin: dict[str, str] | None = None,
) -> Whitening:
    """Learn a whitening from a sample of texts, in memory that does not grow with the sample.

    Args:
        elmo: The model.
        sample: Texts like those that will be embedded, as in `embed`.
        layers: The layers to join: numbers, or "cloze"; by default the top layer and "cloze".
        power: How much the directions are evened out: 0.5 gives all of them the same variance, 0
            leaves them as they are.
        split_sentences: As in `embed`.
        origin: What the sample is, for the model card.

    Returns:
        A whitening for `embed(layers=...)`, whose vectors are as wide as a layer.

    Raises:
        ConfigError: The model has no such layers.
        DataError: The sample is too small, or these layers cannot be joined.
    """
    names = tuple(layers) if layers is not None else (str(elmo.num_layers - 1), CLOZE)
    check_names(names)
    choices = [parse_layers(name) for name in names]
    width = elmo.width * len(names)
    num_tokens, total, products = 0, np.zeros(width), np.zeros((width, width))
    for text in elmo.stream(sample, layers=choices, split_sentences=split_sentences):
        joined = np.concatenate(list(text.vectors), axis=1).astype(np.float64)  # (T, W)
        num_tokens += len(joined)
        total += joined.sum(axis=0)
        products += joined.T @ joined
    if num_tokens < TOKENS_PER_NUMBER * width:
        raise DataError(
            f"a whitening of {width} numbers needs {TOKENS_PER_NUMBER * width} tokens or more, "
            f"found {num_tokens}; pass more text"
        )
    mean = total / num_tokens
    covariance = products / num_tokens - np.outer(mean, mean)
    return Whitening(
        layers=names,
        mean=mean.astype(np.float32),
        projection=quantize_rows(projection(covariance, elmo.width, power)),
        origin=dict(origin or {}),
    )


def projection(
    covariance: Float[np.ndarray, "W W"], width: int, power: float
) -> Float[np.ndarray, "width W"]:
    """Return the projection onto the directions of largest variance, scaled by 1 / variance^power.

    Args:
        covariance: Of the joined layers.
        width: Number of directions.
        power: As in `learn`.
    """
    variances, directions = np.linalg.eigh(covariance)  # ascending
    variances, directions = variances[::-1][:width], directions.T[::-1][:width]
    least = NEGLIGIBLE * variances[0]
    scales = np.where(variances > least, np.maximum(variances, least) ** -power, 0)
    return (directions * scales[:, None]).astype(np.float32)
