"""Int8 rows: a matrix as whole numbers from -127 to 127 and a scale for each row.

    weight[r, c] = numbers[r, c] * scales[r]

Shapes: M rows, X wide.
"""

from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn


class Int8Rows(nn.Module):
    """A matrix in int8, in place of a parameter. It moves, converts and copies with its module.

    `state_dict` holds it as one dense tensor, under the name the parameter would have.
    """

    numbers: Int8[Tensor, "M X"]
    scales: Float[Tensor, " M"]

    def __init__(self, numbers: Int8[Tensor, "M X"], scales: Float[Tensor, " M"]) -> None:
        super().__init__()
        self.register_buffer("numbers", numbers)
        self.register_buffer("scales", scales)

    @property
    def shape(self) -> torch.Size:
        """The shape of the matrix."""
        return self.numbers.shape

    def dense(self) -> Float[Tensor, "M X"]:
        """Return the matrix in the precision of its scales."""
        return self.numbers.to(self.scales.dtype) * self.scales[:, None]

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        destination[prefix.removesuffix(".")] = self.dense()


def dense(weight: Float[Tensor, "M X"] | Int8Rows) -> Float[Tensor, "M X"]:
    """Return a matrix as a tensor of floats."""
    return weight.dense() if isinstance(weight, Int8Rows) else weight
