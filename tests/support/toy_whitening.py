"""A whitening of random numbers, of the top layer and the cloze vectors of a model."""

import numpy as np

from elmore.embed.embedder import Embedder
from elmore.model.native import quantize_rows
from elmore.weights.whitening import Whitening


def make_whitening(elmo: Embedder) -> Whitening:
    rng = np.random.default_rng(0)
    mean = rng.normal(scale=0.01, size=2 * elmo.width).astype(np.float32)  # like toy vectors
    rows = rng.normal(size=(elmo.width, 2 * elmo.width)).astype(np.float32)
    return Whitening(
        layers=(str(elmo.num_layers - 1), "cloze"),
        mean=mean,
        projection=quantize_rows(np.asfortranarray(rows)),  # in column order, as `learn` has it
        origin={"learned from": "random numbers"},
    )
