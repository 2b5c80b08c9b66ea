"""One call of a projected LSTM layer: what every backend is given, validated once.

Shapes: B rows, T tokens, I input width, D output width, H cell width, G = 4H gates;
I = G where the inputs are gate inputs.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from elmore.errors import DataError
from elmore.model.config import Precision
from elmore.model.lstm.native import GATES
from elmore.model.packed_weights import PackedWeights
from elmore.model.padding import as_bool, check_shape
from elmore.model.quantize import Int8Rows, dense
from elmore.model.state import LSTMState


class DenseWeights(NamedTuple):
    """`LSTMWeights` with every matrix as a tensor of floats."""

    input: Float[Tensor, "4*H I"]
    recurrent: Float[Tensor, "4*H D"]
    bias: Float[Tensor, " 4*H"]
    projection: Float[Tensor, "D H"] | None


class LSTMWeights(NamedTuple):
    """The weights of a layer; rows are the gates, in the order of `GATES`, H each."""

    input: Float[Tensor, "4*H I"] | Int8Rows
    recurrent: Float[Tensor, "4*H D"] | Int8Rows
    bias: Float[Tensor, " 4*H"]
    projection: Float[Tensor, "D H"] | Int8Rows | None

    def dense(self) -> DenseWeights:
        """Return all matrices as tensors of floats."""
        projection = None if self.projection is None else dense(self.projection)
        return DenseWeights(dense(self.input), dense(self.recurrent), self.bias, projection)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that hold these weights."""
        tensors = []
        for weight in self:
            if isinstance(weight, Int8Rows):
                tensors += [weight.numbers, weight.scales]
            elif weight is not None:
                tensors.append(weight)
        return tensors


class StateReset(NamedTuple):
    """Where the state is reset before a step, and to what."""

    mask: Bool[Tensor, "B T"]
    state: LSTMState


Result = tuple[Float[Tensor, "B T D"], LSTMState]


def is_autocast(device: torch.device) -> bool:
    """Return whether autocast is on for a device."""
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def disable_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast for a device."""
    return torch.autocast(device.type, enabled=False) if is_autocast(device) else nullcontext()


def bias_with_forget(bias: Float[Tensor, " G"], forget_bias: float) -> Float[Tensor, " G"]:
    """Return the bias with `forget_bias` added to that of the forget gate."""
    parts = zip(GATES, bias.chunk(4), strict=True)
    return torch.cat([part + forget_bias if gate == "forget" else part for gate, part in parts])


def check_tensor(
    name: str,
    tensor: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    *,
    autocast: bool = False,
) -> None:
    """Refuse a tensor that native code would misread, or read past the end of.

    Raises:
        DataError: Shape, type or device differ; with `autocast` floats may be of any type.
    """
    if tensor.shape != shape:
        raise DataError(f"{name} must have the shape {shape}, found {tuple(tensor.shape)}")
    is_mixed = tensor.dtype != dtype and not (autocast and tensor.is_floating_point())
    if is_mixed or tensor.device != device:
        raise DataError(
            f"{name} must be {dtype} on {device} as the weights are, found {tensor.dtype} on "
            f"{tensor.device}; convert it, or move the model"
        )


@dataclass(frozen=True, eq=False)
class Call:
    """Inputs, state, weights and settings of one call.

    With `projected` the inputs are gate inputs, W_x x. `packed` caches the forms of the weights
    that backends make.
    """

    inputs: Float[Tensor, "B T I"]
    mask: Bool[Tensor, "B T"]
    state: LSTMState
    weights: LSTMWeights
    reset: StateReset | None = None
    projected: bool = False
    forget_bias: float = 0.0
    cell_clip: float | None = None
    output_clip: float | None = None
    precision: Precision = "exact"
    packed: PackedWeights = field(default_factory=PackedWeights)

    @classmethod
    def create(
        cls,
        inputs: Float[Tensor, "B T I"],
        mask: Tensor,
        state: LSTMState,
        weights: LSTMWeights,
        reset: StateReset | None = None,
        **settings: object,
    ) -> "Call":
        """Make a call from masks of any type, and validate it.

        Raises:
            DataError: Shapes, types or devices do not fit each other, or a mask holds other
                numbers than 0 and 1.
        """
        check_shape(mask, inputs)
        if reset is not None:
            check_shape(reset.mask, inputs, "a reset mask")
            reset = reset._replace(mask=as_bool(reset.mask))
        call = cls(inputs, as_bool(mask), state, weights, reset, **settings)  # pyrefly: ignore
        call.validate()
        return call

    def validate(self) -> None:
        """Refuse tensors that do not fit each other: native code would read past their ends.

        Raises:
            DataError: Shapes, types or devices do not fit each other.
        """
        num_rows, (num_gates, width) = len(self.mask), self.weights.recurrent.shape
        input_width = num_gates if self.projected else self.weights.input.shape[1]
        mask_shape, output_shape = tuple(self.mask.shape), (num_rows, width)
        cell_shape = (num_rows, num_gates // len(GATES))
        tensors = [
            ("the mask", self.mask, mask_shape),
            ("inputs", self.inputs, (*mask_shape, input_width)),
            ("the output state", self.state.output, output_shape),
            ("the cell state", self.state.cell, cell_shape),
        ]
        if self.reset is not None:
            tensors += [
                ("the reset mask", self.reset.mask, mask_shape),
                ("the output to reset to", self.reset.state.output, output_shape),
                ("the cell to reset to", self.reset.state.cell, cell_shape),
            ]
        bias = self.weights.bias
        autocast = is_autocast(bias.device)
        for name, tensor, shape in tensors:
            dtype = torch.bool if name.endswith("mask") else bias.dtype
            check_tensor(name, tensor, shape, dtype, bias.device, autocast=autocast)

    @property
    def floats(self) -> list[Tensor]:
        """All tensors of numbers that the result depends on."""
        resets = [] if self.reset is None else [*self.reset.state]
        return [self.inputs, *self.state, *resets, *self.weights.tensors]
