"""The native library: packed weights, and the products whose bits do not depend on the batch.

Torch's matrix products choose their summation order by the number of rows, and its vectorised
functions round differently at the end of a tensor. The library sums every element in one fixed
order, so a row gets the same bits alone and in any batch, with any number of threads.

Shapes: M height of a weight, X its width, P parts, N panels of R rows each; B rows, C characters,
F filters.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from elmore import native_build
from elmore.errors import DataError
from elmore.model.quantize import Int8Rows, quantize_rows

SOURCES = Path(__file__).parent / "native"
FLOAT32, INT8_WEIGHTS, INT8_DYNAMIC, INT8_SPLIT = range(4)  # kinds of packed weights: kernels.h
_MIN_THREADED = 2**18  # multiplications, some microseconds: fewer do not pay for another thread


class Matrix(ctypes.Structure):
    """`matrix` in kernels.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("data", "scales", "corrections")),
        *((name, ctypes.c_int64) for name in ("height", "width", "parts", "kind")),
    )


class _Product(ctypes.Structure):
    _fields_ = (
        ("weight", Matrix),
        *((name, ctypes.c_void_p) for name in ("rows", "out")),
        *((name, ctypes.c_int64) for name in ("num_rows", "threads")),
    )


class LSTMCall(ctypes.Structure):
    """`lstm_call` in kernels.h."""

    _fields_ = (
        *((name, Matrix) for name in ("input", "recurrent", "projection")),
        *((name, ctypes.c_void_p) for name in ("bias", "inputs")),
        *((name, ctypes.c_int64) for name in ("input_step", "input_row")),
        ("mask", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("mask_step", "mask_row")),
        ("reset_mask", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("reset_step", "reset_row")),
        *((name, ctypes.c_void_p) for name in ("reset_output", "reset_cell")),
        *((name, ctypes.c_int64) for name in ("reset_output_row", "reset_cell_row")),
        *((name, ctypes.c_void_p) for name in ("first_output", "first_cell")),
        *((name, ctypes.c_int64) for name in ("first_output_row", "first_cell_row")),
        *((name, ctypes.c_void_p) for name in ("output", "cell", "outputs")),
        *((name, ctypes.c_int64) for name in ("num_steps", "num_rows", "num_cells", "width")),
        *((name, ctypes.c_int64) for name in ("skip", "threads")),
        *((name, ctypes.c_float) for name in ("forget_bias", "cell_clip", "output_clip")),
    )


class _CharCNNCall(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("banks", "bias", "embedding", "characters", "out")),
        *((name, ctypes.c_int64) for name in ("num_banks", "num_words", "num_characters")),
        *((name, ctypes.c_int64) for name in ("embedding_dim", "num_filters", "threads")),
    )


class _HighwayCall(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("gate", "transform", "x", "out")),
        *((name, ctypes.c_int64) for name in ("count", "threads")),
    )


class _TanhCall(ctypes.Structure):
    _fields_ = (
        ("values", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("count", "threads")),
    )


_STRUCTURES = (Matrix, _Product, LSTMCall, _CharCNNCall, _HighwayCall, _TanhCall)


@cache
def _library() -> ctypes.CDLL | None:
    """Return the library, or None where there is none for this machine."""
    library = native_build.load(SOURCES)
    if library is None:
        return None
    for name in ("struct_size", "panel_rows", "has_int8_dot", "u8_offset"):
        getattr(library, f"elmore_{name}").restype = ctypes.c_int64
    library.elmore_struct_size.argtypes = [ctypes.c_int64]
    calls = ("multiply", "run_lstm", "run_char_cnn", "run_highway", "run_tanh")
    for name, structure in zip(calls, _STRUCTURES[1:], strict=True):
        function = getattr(library, f"elmore_{name}")
        function.argtypes = [ctypes.POINTER(structure)]
        function.restype = None if name in ("run_highway", "run_tanh") else _check_memory
    library.elmore_run_lstm.argtypes = [ctypes.POINTER(LSTMCall), ctypes.c_int64]
    sizes = [library.elmore_struct_size(number) for number in range(len(_STRUCTURES))]
    assert sizes == [ctypes.sizeof(structure) for structure in _STRUCTURES], "kernels.h differs"
    return library if library.elmore_panel_rows() else None


def _check_memory(has_failed: int) -> None:
    if has_failed:
        raise MemoryError("there is no memory left for the native library to work in")


def available() -> bool:
    """Return whether the library is there, with kernels for this CPU."""
    return _library() is not None


def has_int8_dot() -> bool:
    """Return whether the library is there, and the CPU multiplies int8 with int8."""
    library = _library()
    return library is not None and bool(library.elmore_has_int8_dot())


def why_missing() -> str | None:
    """Return why there is no library, in words for a user, or None where there is one."""
    return native_build.why_missing(SOURCES)


def supports(*tensors: Tensor | None) -> bool:
    """Return whether the library takes these: float32 on the CPU, without autocast and grad."""
    return (
        all(t is None or (t.is_cpu and t.dtype == torch.float and not _learns(t)) for t in tensors)
        and not torch.is_autocast_enabled("cpu")
        and available()
    )


def _learns(tensor: Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()


class PackedMatrix(NamedTuple):
    """A weight (M, X) in the layout that kernels.h describes."""

    data: Tensor
    scales: Float[Tensor, "N R"] | None
    corrections: Int[Tensor, "N R"] | None
    height: int
    width: int
    parts: int
    kind: int

    @property
    def structure(self) -> Matrix:
        """The argument for C; it is valid while this object lives."""
        pointers = map(address, (self.data, self.scales, self.corrections))
        return Matrix(*pointers, self.height, self.width, self.parts, self.kind)


def pack(weight: Float[Tensor, "M X"] | Int8Rows, *, parts: int = 1) -> PackedMatrix:
    """Pack a weight whose rows are in so many parts, for exact products; int8 rows stay int8."""
    if isinstance(weight, Int8Rows):
        if has_int8_dot():
            return _pack_fours(weight, parts, INT8_SPLIT)
        return pack_for_floats(weight, parts=parts)
    (height, width), data = weight.shape, _by_panel(weight.detach(), parts)
    return PackedMatrix(data, None, None, height, width, parts, FLOAT32)


def pack_for_floats(weight: Int8Rows, *, parts: int = 1) -> PackedMatrix:
    """Pack int8 rows that the CPU makes floats again: one without int8 dot products."""
    (height, width), data = weight.shape, _by_panel(weight.numbers, parts)
    scales = _by_panel(weight.scales.float(), parts)
    return PackedMatrix(data, scales, None, height, width, parts, INT8_WEIGHTS)


def pack_dynamic(weight: Float[Tensor, "M X"] | Int8Rows, *, parts: int = 1) -> PackedMatrix:
    """Pack a weight for activations rounded to int8; float rows are quantized."""
    rows = weight if isinstance(weight, Int8Rows) else quantize_rows(weight.detach())
    return _pack_fours(rows, parts, INT8_DYNAMIC)


def _pack_fours(weight: Int8Rows, parts: int, kind: int) -> PackedMatrix:
    """Pack int8 rows for int8 dot products, four columns of a row side by side."""
    library = _library()
    assert library is not None
    height, width = weight.shape
    numbers = functional.pad(weight.numbers, (0, -width % 4))
    sums = numbers.sum(dim=1, dtype=torch.int32) * -library.elmore_u8_offset()
    panels = _by_panel(numbers, parts)  # (N, X, R)
    fours = panels.unflatten(1, (-1, 4)).transpose(2, 3).contiguous()  # (N, X / 4, R, 4)
    scales, corrections = _by_panel(weight.scales.float(), parts), _by_panel(sums, parts)
    return PackedMatrix(fours, scales, corrections, height, width, parts, kind)


def _by_panel(rows: Tensor, parts: int) -> Tensor:
    """Lay out rows, or one number per row, in panels: (N * parts, X, R), or (N * parts, R)."""
    library = _library()
    assert library is not None
    tall, panel = len(rows) // parts, library.elmore_panel_rows()
    by_part = rows.unflatten(0, (parts, tall))
    padding = (0, 0) * (rows.dim() - 1) + (0, -tall % panel)
    panels = functional.pad(by_part, padding).unflatten(1, (-1, panel)).transpose(0, 1)
    panels = panels.flatten(0, 1)
    return (panels.transpose(1, 2) if rows.dim() > 1 else panels).contiguous()


@torch.no_grad()
def multiply(
    weight: PackedMatrix, rows: Float[Tensor, "B X"], bias: Float[Tensor, " M"] | None = None
) -> Float[Tensor, "B M"]:
    """Return rows times the transposed weight, plus a bias.

    Raises:
        DataError: The rows are not as wide as the weight.
    """
    library = _library()
    assert library is not None
    if rows.shape[1:] != (weight.width,):
        raise DataError(
            f"expected rows of width {weight.width}, as the weight is, found the shape "
            f"{tuple(rows.shape)}"
        )
    rows = rows.contiguous()
    out = rows.new_empty(len(rows), weight.height)
    call = _Product(
        weight.structure,
        *map(address, (rows, out)),
        len(rows),
        num_threads_for(len(rows) * weight.height * weight.width),
    )
    library.elmore_multiply(call)
    return out if bias is None else out.add_(bias)


def run_lstm(layers: "ctypes.Array[LSTMCall]") -> None:
    """Run layers one after another; `elmore.model.lstm.native` makes the calls."""
    library = _library()
    assert library is not None
    library.elmore_run_lstm(layers, len(layers))


@torch.no_grad()
def run_char_cnn(
    embedding: Float[Tensor, "V E"],
    characters: Int[Tensor, "B C"],
    banks: Sequence[PackedMatrix],
    bias: Float[Tensor, " F"],
) -> Float[Tensor, "B F"]:
    """Return the maximum of every filter over the windows of each word, and its bias.

    The ids must be rows of the embedding, and C at least the widest filter.
    """
    library = _library()
    assert library is not None
    characters, embedding = characters.contiguous(), embedding.contiguous()
    out = embedding.new_empty(len(characters), len(bias))
    structures = (Matrix * len(banks))(*(bank.structure for bank in banks))
    call = _CharCNNCall(
        ctypes.addressof(structures),
        *map(address, (bias, embedding, characters, out)),
        *(len(banks), *characters.shape, embedding.shape[1], len(bias)),
        num_threads_for(characters.numel() * sum(bank.data.numel() for bank in banks)),
    )
    library.elmore_run_char_cnn(call)
    return out


@torch.no_grad()
def run_highway(
    x: Float[Tensor, "B F"],
    gate_weight: PackedMatrix,
    gate_bias: Float[Tensor, " F"],
    transform_weight: PackedMatrix,
    transform_bias: Float[Tensor, " F"],
) -> Float[Tensor, "B F"]:
    """Return sigmoid(gate) * relu(transform) + (1 - sigmoid(gate)) * x."""
    library = _library()
    assert library is not None
    gate = multiply(gate_weight, x, gate_bias)
    transform = multiply(transform_weight, x, transform_bias)
    x = x.contiguous()
    out = torch.empty_like(x)
    pointers = map(address, (gate, transform, x, out))
    library.elmore_run_highway(_HighwayCall(*pointers, x.numel(), num_threads_for(8 * x.numel())))
    return out


@torch.no_grad()
def run_tanh(values: Float[Tensor, "B F"]) -> Float[Tensor, "B F"]:
    """Return the tanh of every element."""
    library = _library()
    assert library is not None
    out = values.clone(memory_format=torch.contiguous_format)
    library.elmore_run_tanh(_TanhCall(address(out), out.numel(), num_threads_for(8 * out.numel())))
    return out


def address(tensor: Tensor | None) -> int | None:
    """Return the pointer for C; it is valid while the tensor lives."""
    return None if tensor is None else tensor.data_ptr()


def num_threads_for(multiplications: int) -> int:
    """Return how many threads so many multiplications are worth."""
    return torch.get_num_threads() if multiplications >= _MIN_THREADED else 1
