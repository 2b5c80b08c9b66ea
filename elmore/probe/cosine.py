"""Directions without lengths: the cosine of two vectors is the product of their unit vectors."""

import numpy as np
from jaxtyping import Float


def unit(vectors: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
    """Scale to length one; a vector of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
