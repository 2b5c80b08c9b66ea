"""A linear layer whose results do not depend on the batch where the native library runs it.

Shapes: B rows, X input width, Y output width.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from elmore.model import native
from elmore.model.config import Precision
from elmore.model.native_bilm import NativeLinear
from elmore.model.packed_weights import PackedWeights, as_weight, runs_natively


class Linear(nn.Linear):
    """`nn.Linear`; without grad on a CPU it runs natively, with precision "fast" in int8."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.precision: Precision = "exact"
        self._packed = PackedWeights()

    def forward(self, input: Float[Tensor, "B X"]) -> Float[Tensor, "B Y"]:
        """Return input W' + b."""
        if not runs_natively(input, self.weight, self.bias):
            self._packed.clear()  # a fused optimizer may step next, which does not raise `_version`
            return functional.linear(input, self.weight, self.bias)
        return torch.from_numpy(self.pack()(input.detach().numpy()))

    def pack(self) -> NativeLinear:
        """Return the layer for the native library, weight and bias as they were at one time."""
        dynamic = self.precision == "fast" and native.has_int8_dot()

        def make() -> NativeLinear:
            weight = native.pack(as_weight(self.weight), dynamic=dynamic)
            return NativeLinear(weight, self.bias.clone().numpy())

        return self._packed.get(dynamic, [self.weight, self.bias], make)

    def _apply(self, fn: Callable, recurse: bool = True) -> "Linear":
        self._packed.clear()
        return super()._apply(fn, recurse)
