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
POWER = 0.375  # best on held-out SemCor, see benchmarks/whitening.py
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
    texts = elmo.stream(sample, layers=choices, split_sentences=split_sentences)
    blocks = (np.concatenate(list(text.vectors), axis=1) for text in texts)
    return fit(blocks, names, power=power, origin=origin)


def fit(
    blocks: Iterable[Float[np.ndarray, "T W"]],
    layers: Sequence[str],
    *,
    power: float = POWER,
    origin: dict[str, str] | None = None,
) -> Whitening:
    """Learn a whitening from the joined layers of tokens, in blocks.

    Args:
        blocks: Joined layers of some tokens each.
        layers: Their names, as in `learn`.
        power: As in `learn`.
        origin: As in `learn`.

    Returns:
        The whitening.

    Raises:
        DataError: There are too few tokens, or these layers cannot be joined.
    """
    num_tokens, total, products = 0, np.zeros(()), np.zeros(())
    for block in blocks:
        joined = block.astype(np.float64)
        num_tokens += len(joined)
        total = total + joined.sum(axis=0)
        products = products + joined.T @ joined  # (W, W)
    if num_tokens < TOKENS_PER_NUMBER * total.size:  # size 1 if there is no block at all
        raise DataError(
            f"a whitening of {total.size} numbers needs {TOKENS_PER_NUMBER * total.size} tokens or "
            f"more, found {num_tokens}; pass more text"
        )
    mean = total / num_tokens
    covariance = products / num_tokens - np.outer(mean, mean)
    return Whitening(
        layers=tuple(layers),
        mean=mean.astype(np.float32),
        projection=quantize_rows(projection(covariance, len(mean) // len(layers), power)),
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
