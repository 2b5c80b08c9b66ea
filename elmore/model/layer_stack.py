"""The output of a biLM for a batch: the token layer and every LSTM layer, both directions.

Shapes: L LSTM layers, B sentences, T tokens, D width of one direction.
"""

from typing import Any, NamedTuple

from jaxtyping import Bool, Float


class LayerStack(NamedTuple):
    """Layers of a batch; positions where the mask is false are zero in every layer.

    They are tensors of torch, or arrays of numpy where native code runs the model.
    """

    states: Float[Any, "L+1 B T 2*D"]
    mask: Bool[Any, "B T"]

    def without_boundaries(self) -> "LayerStack":
        """Return the stack without the first and the last token of every sentence."""
        mask = self.mask[:, 2:]  # a position is inside if the one after next still exists
        return LayerStack(self.states[:, :, 1:-1] * mask[:, :, None], mask)
