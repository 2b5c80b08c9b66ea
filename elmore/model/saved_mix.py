"""The values of a trained mix of layers, and the mix itself on arrays of numpy or torch.

    mixed[t] = gamma * sum_l softmax(weights)[l] * layers[l, t]

`mix.py` has the module that learns them. Shapes: L layers, D width.
"""

import math
from typing import Any, NamedTuple

from jaxtyping import Float

TOKEN_EPSILON = 1e-5  # inside the root


class SavedMix(NamedTuple):
    """The values of a trained mix, as files hold them."""

    weights: tuple[float, ...]
    gamma: float
    layer_norm: bool = False
    """Whether each vector is normalised first ("token")."""

    def mix(self, layers: Float[Any, "L *rest D"]) -> Float[Any, "*rest D"]:
        """Return the weighted sum of the layers.

        Args:
            layers: All layers, the token layer first.
        """
        largest = max(self.weights)
        powers = [math.exp(weight - largest) for weight in self.weights]
        mixed = 0
        for layer, power in zip(layers, powers, strict=True):
            vectors = _normalize(layer) if self.layer_norm else layer
            mixed = mixed + vectors * (power / sum(powers) * self.gamma)
        return mixed


def _normalize(vectors: Float[Any, "*rest D"]) -> Float[Any, "*rest D"]:
    """Return each vector with mean 0 and variance 1."""
    centred = vectors - vectors.mean(-1)[..., None]
    return centred / ((centred**2).mean(-1)[..., None] + TOKEN_EPSILON) ** 0.5
