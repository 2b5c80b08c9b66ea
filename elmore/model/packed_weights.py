"""A cache of packed weights: made on first use, and again when the weights have changed.

Shapes: M rows, X wide.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.model import native
from elmore.model.quantize import Int8Rows

Form = TypeVar("Form")


class PackedWeights:
    """A cache of what is made from weights: panels for the native library, matrices in bf16.

    An entry is made again when its weights were moved, converted, replaced or written to. Writes
    that do not raise the version counter of a tensor (`Tensor._version`) are not seen: through
    `weight.data`, to tensors created in inference mode, and by fused optimizers. So modules call
    `clear` when they are moved, converted or run with gradients. Copies and pickles are empty:
    another machine may need other forms.
    """

    def __init__(self) -> None:
        self._forms: dict[Hashable, tuple[object, object]] = {}

    def get(
        self, name: Hashable, weights: Sequence[Tensor | None], make: Callable[[], Form]
    ) -> Form:
        """Return the form of this name, made of these weights."""
        version = [None if weight is None else tensor_version(weight) for weight in weights]
        entry = self._forms.get(name)
        if entry is None or entry[0] != version:
            with torch.no_grad():
                entry = self._forms[name] = version, make()
        return entry[1]  # pyrefly: ignore[bad-return]

    def clear(self) -> None:
        """Forget all forms."""
        self._forms.clear()

    def __deepcopy__(self, memo: object) -> "PackedWeights":
        return PackedWeights()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return PackedWeights, ()


def tensor_version(weight: Tensor) -> tuple[object, ...]:
    """Return a value that changes when a tensor is replaced or written to."""
    # a tensor that was created in inference mode has no version counter
    counter = True if weight.is_inference() else weight._version
    return weight.data_ptr(), weight.dtype, weight.device, weight.shape, counter


def weights_version(model: nn.Module) -> object:
    """Return a value that changes when weights are moved, converted, replaced or written to.

    What was computed from the weights is valid while it stays the same. Like the version counters
    of tensors, it does not change on writes through `weight.data`, to tensors created in inference
    mode, and by fused optimizers (`AdamW(fused=True)`).
    """
    return [tensor_version(weight) for weight in _tensors(model)]


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    """Yield parameters and buffers; torch's generators would double the time of a version."""
    modules = [model]
    for module in modules:  # which grows: children are appended
        for weight in (*module._parameters.values(), *module._buffers.values()):
            if weight is not None:
                yield weight
        modules += [child for child in module._modules.values() if child is not None]


def as_weight(weight: Float[Tensor, "M X"] | Int8Rows) -> native.Weight:
    """Return a matrix for `native.pack`, in the memory of its tensors."""
    if isinstance(weight, Int8Rows):
        return native.Int8Matrix(weight.numbers.numpy(), weight.scales.float().numpy())
    return weight.detach().numpy()


def runs_natively(*tensors: Tensor) -> bool:
    """Return whether the library takes these: float32 on the CPU, without autocast and grad."""
    return (
        all(t.is_cpu and t.dtype == torch.float and not _needs_grad(t) for t in tensors)
        and not torch.is_autocast_enabled("cpu")
        and native.available()
    )


def _needs_grad(tensor: Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()
