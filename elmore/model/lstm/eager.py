"""The projected LSTM as a loop of torch operations without gradients, for any device and type.

Buffers are allocated before the loop and nothing waits for the device, so a CUDA graph can capture
it. The products are a parameter: in the type of the weights, or with both factors in bf16 and
everything else in float32 (precision "fast" on devices with bf16 matrix units). A GPU returns a
product of bf16 factors in float32; oneDNN, on a CPU, rounds it too.

Shapes: B rows, T tokens, I input width, D output width, H cell width, G = 4H gates; a product has
M rows, X wide, and makes them Y wide.
"""

import platform
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.model.lstm import training
from elmore.model.lstm.call import Call, LSTMState, LSTMWeights, Result, bias_with_forget
from elmore.model.packed_weights import PackedWeights

_CHUNK_ROWS = 4096  # inputs multiplied together: bounds the memory of their gate inputs


class Products(NamedTuple):
    """The matrix products of a layer, and its bias with that of the forget gate."""

    input: Callable[[Tensor], Tensor]
    recurrent: Callable[[Tensor], Tensor]
    projection: Callable[[Tensor], Tensor] | None
    bias: Float[Tensor, " G"]
    dtype: torch.dtype
    """Of the factors."""


def exact_products(weights: LSTMWeights, packed: PackedWeights, forget_bias: float) -> Products:
    """Return the products in the type of the weights."""
    return _products(weights, packed, forget_bias, _ExactLinear, weights.bias.dtype)


def bf16_products(weights: LSTMWeights, packed: PackedWeights, forget_bias: float) -> Products:
    """Return the products with both factors in bf16."""
    return _products(weights, packed, forget_bias, BF16Linear, torch.bfloat16)


def _products(
    weights: LSTMWeights,
    packed: PackedWeights,
    forget_bias: float,
    linear: Callable[[Tensor], Callable[[Tensor], Tensor]],
    dtype: torch.dtype,
) -> Products:
    def make() -> Products:
        dense = weights.dense()
        return Products(
            linear(dense.input),
            linear(dense.recurrent),
            None if dense.projection is None else linear(dense.projection),
            bias_with_forget(dense.bias.detach(), forget_bias),
            dtype,
        )

    return packed.get((linear, forget_bias), weights.tensors, make)


@torch.no_grad()
def project_inputs(inputs: Float[Tensor, "B T I"], products: Products) -> Float[Tensor, "B T G"]:
    """Return the gate inputs W_x x."""
    return products.input(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])


@torch.no_grad()
def run(call: Call, products: Products) -> Result:
    """Run each row from left to right; return the outputs and the state after the last token."""
    with torch.cuda.device_of(call.inputs), torch.autocast(call.inputs.device.type, enabled=False):
        return _run(call, products)


def _run(call: Call, products: Products) -> Result:
    kernels = training.pointwise_kernels(call.inputs.device)
    mask = training.flags_by_step(call.mask, at_end=True)
    reset_state = call.state if call.reset is None else call.reset.state
    reset_mask = torch.zeros_like(mask)
    if call.reset is not None:
        reset_mask = training.flags_by_step(call.reset.mask, at_end=False)
    reset_state = LSTMState(*(part.contiguous() for part in reset_state))
    output, cell = (
        torch.where(reset_mask[0], *pair) for pair in zip(reset_state, call.state, strict=True)
    )
    output = output.to(products.dtype)  # only products read it
    hidden_dtype = cell.dtype if products.projection is None else products.dtype
    hidden = torch.empty_like(cell, dtype=hidden_dtype)
    num_rows, num_steps = call.mask.shape
    outputs = cell.new_empty(num_steps, num_rows, output.shape[1])
    chunk = max(1, _CHUNK_ROWS // max(1, num_rows))
    gate_inputs = call.inputs.transpose(0, 1)
    for step in range(num_steps):
        if not call.projected and step % chunk == 0:
            gate_inputs = project_inputs(
                call.inputs[:, step : step + chunk].transpose(0, 1), products
            )
        flags = mask[step], reset_mask[step + 1]
        kernels.cell_step(
            products.recurrent(output),
            gate_inputs[step if call.projected else step % chunk],
            products.bias,
            cell,
            *flags,
            reset_state.cell,
            call.cell_clip,
            hidden,
            cell,
        )
        projected, clip = hidden, None
        if products.projection is not None:
            projected, clip = products.projection(hidden), call.output_clip
        kernels.output_step(
            projected, output, *flags, reset_state.output, clip, outputs[step], output
        )
    return outputs.transpose(0, 1), LSTMState(output.to(cell.dtype), cell)


class _ExactLinear:
    """x -> x W' in the type of the weight."""

    def __init__(self, weight: Float[Tensor, "Y X"]) -> None:
        self._weight = weight.detach()

    def __call__(self, rows: Float[Tensor, "M X"]) -> Float[Tensor, "M Y"]:
        """Multiply."""
        return rows @ self._weight.T


class BF16Linear:
    """x -> x W' with both factors in bf16; the weight is rounded once, and packed on a CPU."""

    def __init__(self, weight: Float[Tensor, "Y X"]) -> None:
        rounded = weight.detach().to(torch.bfloat16)
        packed = pack_bf16(rounded)
        self._is_packed = packed is not None
        self._weight = rounded if packed is None else packed

    def __call__(self, rows: Float[Tensor, "M X"]) -> Float[Tensor, "M Y"]:
        """Multiply; the result is in float32."""
        multiply = multiply_packed_bf16 if self._is_packed else multiply_bf16
        return multiply(rows.to(torch.bfloat16), self._weight).float()


def multiply_bf16(rows: Float[Tensor, "M X"], weight: Float[Tensor, "Y X"]) -> Float[Tensor, "M Y"]:
    """Multiply rows with a weight that is not packed; a GPU does not round the result."""
    if rows.is_cuda:
        return torch.mm(rows, weight.T, out_dtype=torch.float32)
    return rows @ weight.T


def pack_bf16(weight: Float[Tensor, "Y X"]) -> Tensor | None:
    """Lay out a weight as oneDNN multiplies with it, or return None.

    Otherwise it would do so at every step. The function is private to torch and may be missing.
    """
    if weight.device.type != "cpu":
        return None
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        multiply_packed_bf16(weight[:1], packed)
    except (AttributeError, RuntimeError, TypeError):
        return None
    return packed


def multiply_packed_bf16(rows: Float[Tensor, "M X"], weight: Tensor) -> Float[Tensor, "M Y"]:
    """Multiply rows with a packed weight; the result is in their precision."""
    return torch.ops.mkldnn._linear_pointwise(rows, weight, None, "none", [], "")


def has_native_bf16(device: torch.device) -> bool:
    """Return whether a device multiplies matrices faster in bf16 than in float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if platform.machine().lower() in ("aarch64", "arm64"):  # elsewhere this is true of emulation
        return _probe_private(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(_probe_private(torch.cpu, name) for name in names)


def _probe_private(where: object, name: str) -> bool:
    """Call a private function of torch; where it is missing, the answer is no."""
    try:
        return bool(getattr(where, name)())
    except (AttributeError, RuntimeError):
        return False
