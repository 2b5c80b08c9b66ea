"""Unit vectors: the cosine of two vectors is the dot product of their unit vectors."""

import numpy as np
from jaxtyping import Float


def normalize(vectors: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
    """Scale vectors to unit length; a zero vector stays zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)
