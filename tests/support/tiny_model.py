"""Save a tiny model as a folder, for frameworks that load a model by its path.

Used by the tests of scikit-learn and spaCy in tests/integrations.
"""

from pathlib import Path

import numpy as np

from elmore.weights import folder, pretrained
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm


def save_model(path: Path, seed: int = 0) -> str:
    options = bilm_options()
    weights = bilm_weights(options, np.random.default_rng(seed))
    bundle = pretrained.load(*write_bilm(path, options, weights))
    folder.save(bundle, path / "tiny")
    return str(path / "tiny")
