"""The one table of implementations of the recurrence, and the one place that chooses among them.

Shapes: B rows, T tokens, I input width, D output width, G = 4H gates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.errors import ConfigError
from elmore.model import native
from elmore.model.config import Precision
from elmore.model.lstm import eager, native_backend, reference, training
from elmore.model.lstm.call import Call, LSTMWeights, Result, is_autocast
from elmore.model.lstm.native import PackedLayer
from elmore.model.packed_weights import PackedWeights


class Need(NamedTuple):
    """What a call needs of a backend."""

    device: torch.device
    dtypes: frozenset[torch.dtype]
    """Of the inputs, states and weights."""
    grad: bool
    """Whether gradients are asked for."""
    autocast: bool
    precision: Precision

    @classmethod
    def from_tensors(cls, tensors: list[Tensor], precision: Precision) -> "Need":
        """Return what a call with these tensors needs."""
        device = tensors[0].device
        return cls(
            device,
            frozenset(tensor.dtype for tensor in tensors if tensor.is_floating_point()),
            torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors),
            is_autocast(device),
            precision,
        )


@dataclass(frozen=True)
class Backend:
    """One implementation, and what it can do."""

    name: str
    run: Callable[[Call], Result]
    project_inputs: Callable[[Tensor, LSTMWeights, PackedWeights], Tensor]
    available: Callable[[torch.device], bool]
    """Whether this machine has what it takes for a device: a library, instructions, units."""
    precision: Precision = "exact"
    devices: frozenset[str] | None = None
    """None: any."""
    dtypes: frozenset[torch.dtype] | None = None
    """None: any."""
    grad: bool = False
    no_grad: bool = True
    autocast: bool = False
    pack: Callable[[LSTMWeights, PackedWeights], PackedLayer] | None = None
    """Packs weights for a `NativeStack`, if the backend is native."""

    def fits(self, need: Need) -> bool:
        """Return whether "auto" may choose it; an exact backend also runs "fast" calls."""
        return (
            (self.grad if need.grad else self.no_grad)
            and (self.autocast or not need.autocast)
            and (self.precision == "exact" or need.precision == "fast")
            and self.supports(need)
        )

    def supports(self, need: Need) -> bool:
        """Return whether this machine runs it on such a device, with such types."""
        return (
            (self.devices is None or need.device.type in self.devices)
            and (self.dtypes is None or need.dtypes <= self.dtypes)
            and self.available(need.device)  # last: it may build the native library
        )


def _exact(call: Call) -> Result:
    return eager.run(call, eager.exact_products(call.weights, call.packed, call.forget_bias))


def _bf16(call: Call) -> Result:
    return eager.run(call, eager.bf16_products(call.weights, call.packed, call.forget_bias))


_FLOAT32 = frozenset([torch.float32])

# The first that fits is taken: fast before exact, native before torch, the definition last.
BACKENDS = {
    backend.name: backend
    for backend in (
        Backend(
            "native_int8",
            partial(native_backend.run, dynamic=True),
            partial(native_backend.project_inputs, dynamic=True),
            lambda device: native.has_int8_dot(),
            precision="fast",
            devices=frozenset(["cpu"]),
            dtypes=_FLOAT32,
            autocast=True,
            pack=partial(native_backend.pack_layer, dynamic=True),
        ),
        Backend(
            "eager_bf16",
            _bf16,
            lambda inputs, weights, packed: eager.project_inputs(
                inputs, eager.bf16_products(weights, packed, 0.0)
            ),
            lambda device: eager.has_native_bf16(device),
            precision="fast",
            dtypes=_FLOAT32,
            autocast=True,
        ),
        Backend(
            "native",
            native_backend.run,
            native_backend.project_inputs,
            lambda device: native.available(),
            devices=frozenset(["cpu"]),
            dtypes=_FLOAT32,
            pack=partial(native_backend.pack_layer, dynamic=False),
        ),
        Backend(
            "eager",
            _exact,
            lambda inputs, weights, packed: eager.project_inputs(
                inputs, eager.exact_products(weights, packed, 0.0)
            ),
            lambda device: True,
        ),
        Backend(
            "training",
            training.run,
            lambda inputs, weights, packed: reference.project_inputs(inputs, weights.dense()),
            lambda device: True,
            devices=frozenset(["cpu", "cuda"]),
            grad=True,
            no_grad=False,
            autocast=True,
        ),
        Backend(
            "reference",
            reference.run,
            lambda inputs, weights, packed: reference.project_inputs(inputs, weights.dense()),
            lambda device: True,
            grad=True,
            autocast=True,
        ),
    )
}


def select_backend(need: Need, name: str = "auto") -> Backend:
    """Return the backend of that name, or for "auto" the first of the table that fits."""
    if name != "auto":
        return BACKENDS[name]
    return next(backend for backend in BACKENDS.values() if backend.fits(need))


def run(call: Call, name: str = "auto") -> Result:
    """Run a validated call.

    Raises:
        ConfigError: The backend of that name cannot run such a call.
    """
    need = Need.from_tensors(call.floats, call.precision)
    backend = select_backend(need, name)
    if name != "auto" and not _runs_by_name(backend, need):
        raise ConfigError(
            f"the backend {name!r} cannot run on {need.device} with "
            f"{', '.join(sorted(map(str, need.dtypes)))} here; use 'auto'"
        )
    if need.grad:
        call.packed.clear()  # a fused optimizer may step next, which does not raise `_version`
    return backend.run(call)


def _runs_by_name(backend: Backend, need: Need) -> bool:
    """Return whether a backend that was asked for by name gives the right result.

    It may be another than "auto" would choose: slower, or of another precision.
    """
    return (backend.grad or not need.grad) and backend.supports(need)


def project_inputs(
    inputs: Float[Tensor, "B T I"],
    weights: LSTMWeights,
    packed: PackedWeights,
    precision: Precision,
    name: str = "auto",
) -> Float[Tensor, "B T G"]:
    """Return the gate inputs W_x x, by the backend that would run a call with them."""
    backend = select_backend(Need.from_tensors([inputs, *weights.tensors], precision), name)
    return backend.project_inputs(inputs, weights, packed)


@torch.no_grad()
def pack_weights(
    weights: LSTMWeights, packed: PackedWeights, precision: Precision, name: str = "auto"
) -> PackedLayer | None:
    """Return the weights for a `NativeStack`, or None where another backend runs inference."""
    backend = select_backend(Need.from_tensors(weights.tensors, precision), name)
    return None if backend.pack is None else backend.pack(weights, packed)
