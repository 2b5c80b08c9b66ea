"""A tiny model in a folder of ours, for frameworks that load a model by its path."""

from pathlib import Path

import numpy as np

from elmore.weights import folder, pretrained
from tests.foreign import bilm_options, bilm_weights, write_bilm


def saved(place: Path, seed: int = 0) -> str:
    options = bilm_options()
    weights = bilm_weights(options, np.random.default_rng(seed))
    bundle = pretrained.load(*write_bilm(place, options, weights))
    folder.save(bundle, place / "tiny")
    return str(place / "tiny")
