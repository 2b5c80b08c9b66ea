"""A learned pooling of random numbers, with everything a pooling may have but word frequencies."""

import numpy as np

from elmore.embed.embedder import Embedder
from elmore.weights.pooling import TextPooling

WIDTH = 3


def make_pooling(elmo: Embedder) -> TextPooling:
    rng = np.random.default_rng(0)
    width = elmo.num_layers * elmo.width
    return TextPooling(
        mean=rng.normal(size=width).astype(np.float32),
        components=np.eye(1, width, dtype=np.float32),
        attention=rng.normal(size=width).astype(np.float32),
        projection=rng.integers(-127, 128, (WIDTH, width), np.int8),
        scales=rng.uniform(0.01, 0.02, WIDTH).astype(np.float16),
        all_layers=True,
        origin={"teacher": "random numbers"},
    )
