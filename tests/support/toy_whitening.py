"""A whitening of random numbers, of the top layer and the cloze vectors of a model."""

import numpy as np

from elmore.embed.embedder import Embedder
from elmore.embed.whitening import quantize
from elmore.model.native import Int8Matrix
from elmore.weights.whitening import Whitening


def make_whitening(elmo: Embedder) -> Whitening:
    rng = np.random.default_rng(0)
    mean = rng.normal(scale=0.01, size=2 * elmo.width).astype(np.float32)  # like toy vectors
    numbers, scales = quantize(rng.normal(size=(elmo.width, 2 * elmo.width)))
    return Whitening(
        layers=(str(elmo.num_layers - 1), "cloze"),
        mean=mean,
        projection=Int8Matrix(np.asfortranarray(numbers), scales),  # files may have either order
        origin={"learned from": "random numbers"},
    )
