"""Maxout: a dense layer with a learned, piecewise linear activation (Goodfellow et al., 2013).

    output[i] = max_p (weight[i, p] . x + bias[i, p])

Shapes: I input width, O output width.
"""

from jaxtyping import Float
from torch import Tensor, nn


class Maxout(nn.Module):
    """Each output element is the maximum of `pool_size` linear functions."""

    def __init__(self, input_dim: int, output_dim: int, pool_size: int) -> None:
        super().__init__()
        self.output_dim = output_dim
        self.pieces = nn.Linear(input_dim, output_dim * pool_size)

    def forward(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        """Apply the layer."""
        return self.pieces(x).unflatten(-1, (self.output_dim, -1)).amax(dim=-1)
