"""The output of a biLM for a batch: the token layer and every LSTM layer, both directions.

Shapes: L LSTM layers, B sentences, T tokens, D width of one direction.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor


class LayerStack(NamedTuple):
    """Layers of a batch; positions where the mask is false are zero in every layer."""

    states: Float[Tensor, "L+1 B T 2*D"]
    mask: Bool[Tensor, "B T"]

    def without_boundaries(self) -> "LayerStack":
        """Return the stack without the first and the last token of every sentence."""
        mask = self.mask[:, 2:]  # a position is inside if the one after next still exists
        return LayerStack(self.states[:, :, 1:-1] * mask[:, :, None], mask)
