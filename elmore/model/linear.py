"""A linear layer whose results do not depend on the batch where the native library runs it.

Shapes: B rows, X input width, Y output width.
"""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from elmore.model import native
from elmore.model.packed_weights import PackedWeights

Precision = Literal["exact", "fast"]


class Linear(nn.Linear):
    """`nn.Linear`; without grad on a CPU it runs natively, with precision "fast" in int8."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.precision: Precision = "exact"
        self._packed = PackedWeights()

    def forward(self, input: Float[Tensor, "B X"]) -> Float[Tensor, "B Y"]:
        """Return input W' + b."""
        if not native.supports(input, self.weight, self.bias):
            self._packed.clear()  # in training, an update may follow that torch does not count
            return functional.linear(input, self.weight, self.bias)
        weight, bias = self.pack()
        return native.multiply(weight, input, bias)

    def pack(self) -> tuple[native.PackedMatrix, Float[Tensor, " Y"]]:
        """Return weight and bias for the native library, both as they were at the same time."""
        dynamic = self.precision == "fast" and native.has_int8_dot()
        pack = native.pack_dynamic if dynamic else native.pack
        return self._packed.get(
            dynamic, [self.weight, self.bias], lambda: (pack(self.weight), self.bias.clone())
        )

    def _apply(self, fn: Callable, recurse: bool = True) -> "Linear":
        self._packed.clear()
        return super()._apply(fn, recurse)
