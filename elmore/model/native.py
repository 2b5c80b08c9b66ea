"""The native library: packed weights, and the products whose bits do not depend on the batch.

BLAS chooses its summation order by the number of rows, and vectorised functions round differently
at the end of an array. The library sums every element in one fixed order, so a row gets the same
bits alone and in any batch, with any number of threads. It takes arrays of numpy.

Shapes: M height of a weight, X its width, P parts, N panels of R rows each; B rows, C characters,
F filters.
"""

import ctypes
import logging
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int8, Shaped
from numpy.typing import DTypeLike

from elmore import native_build
from elmore.errors import DataError
from elmore.model.native_threads import num_threads_for

SOURCES = Path(__file__).parent / "native"
# Kinds of packed weights, as in kernels.h: float32; int8 with float activations (W8A32), with
# activations quantized at run time (W8A8), with activations of 24 bits, as three int8 digits, and
# with activations of 16 bits (W8A16), as two.
FLOAT32, INT8_WEIGHTS, INT8_DYNAMIC, INT8_SPLIT, INT8_DYNAMIC16 = range(5)
MAX_INT8 = 127
_OLD_CPU = "this CPU lacks the instructions of its kernels, AVX2 and FMA"
_CACHE_LINE = 64  # bytes

_log = logging.getLogger(__name__)


class Matrix(ctypes.Structure):
    """`matrix` in kernels.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("data", "scales", "corrections")),
        *((name, ctypes.c_int64) for name in ("height", "width", "parts", "kind")),
    )


class _Product(ctypes.Structure):
    _fields_ = (
        ("weight", Matrix),
        *((name, ctypes.c_void_p) for name in ("rows", "bias", "out")),
        *((name, ctypes.c_int64) for name in ("num_rows", "threads")),
    )


class LSTMCall(ctypes.Structure):
    """`lstm_call` in kernels.h."""

    _fields_ = (
        *((name, Matrix) for name in ("input", "recurrent", "projection")),
        *((name, ctypes.c_void_p) for name in ("bias", "inputs")),
        *((name, ctypes.c_int64) for name in ("input_step", "input_row")),
        *((name, ctypes.c_void_p) for name in ("input_index", "mask")),
        *((name, ctypes.c_int64) for name in ("mask_step", "mask_row")),
        ("reset_mask", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("reset_step", "reset_row")),
        *((name, ctypes.c_void_p) for name in ("reset_output", "reset_cell")),
        *((name, ctypes.c_int64) for name in ("reset_output_row", "reset_cell_row")),
        *((name, ctypes.c_void_p) for name in ("first_output", "first_cell")),
        *((name, ctypes.c_int64) for name in ("first_output_row", "first_cell_row")),
        *((name, ctypes.c_void_p) for name in ("output", "cell", "outputs")),
        ("output_row", ctypes.c_int64),
        ("output_index", ctypes.c_void_p),
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


class _LogSumCall(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("values", "out")),
        *((name, ctypes.c_int64) for name in ("num_rows", "width", "threads")),
    )


_CALLS = {
    "multiply": _Product,
    "run_lstm": LSTMCall,
    "run_char_cnn": _CharCNNCall,
    "run_highway": _HighwayCall,
    "run_tanh": _TanhCall,
    "log_sum_exp": _LogSumCall,
}
_ALLOCATE_NOTHING = ("run_highway", "run_tanh", "log_sum_exp")  # the others may run out of memory


@cache
def _library() -> ctypes.CDLL | None:
    """Return the library, or None where there is none for this machine."""
    library = native_build.load(SOURCES)
    if library is None:
        return None
    for name in ("struct_size", "panel_rows", "has_int8_dot", "has_matrix_unit", "u8_offset"):
        getattr(library, f"elmore_{name}").restype = ctypes.c_int64
    library.elmore_struct_size.argtypes = [ctypes.c_int64]
    for name, structure in _CALLS.items():
        function = getattr(library, f"elmore_{name}")
        function.argtypes = [ctypes.POINTER(structure)]
        function.restype = None if name in _ALLOCATE_NOTHING else _check_memory
    library.elmore_run_lstm.argtypes = [ctypes.POINTER(LSTMCall), ctypes.c_int64]
    structures = (Matrix, *_CALLS.values())
    sizes = [library.elmore_struct_size(number) for number in range(len(structures))]
    assert sizes == [ctypes.sizeof(structure) for structure in structures], "kernels.h differs"
    if library.elmore_panel_rows():
        return library
    _log.warning("the native library is not used: %s; %s", _OLD_CPU, native_build.SLOWER)
    return None


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


def has_matrix_unit() -> bool:
    """Return whether the library is there, and a matrix unit multiplies int8 with int8."""
    library = _library()
    return library is not None and bool(library.elmore_has_matrix_unit())


def why_missing() -> str | None:
    """Return why there is no library, in words for a user, or None where there is one."""
    return native_build.why_missing(SOURCES) or (None if available() else _OLD_CPU)


class Int8Matrix(NamedTuple):
    """A matrix as whole numbers from -127 to 127 and a scale for each row."""

    numbers: Int8[np.ndarray, "M X"]
    scales: Float[np.ndarray, " M"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        return self.numbers.shape

    def dense(self) -> Float[np.ndarray, "M X"]:
        """Return the matrix as floats."""
        return self.numbers.astype(np.float32) * self.scales[:, None]


Weight = Float[np.ndarray, "_ _"] | Int8Matrix


def quantize_rows(weight: Float[np.ndarray, "M X"]) -> Int8Matrix:
    """Round each row to its own scale: the largest number of each becomes 127."""
    largest = np.abs(weight).max(axis=1)
    scales = np.where(largest == 0, np.float32(1), largest / np.float32(MAX_INT8))
    return Int8Matrix(np.rint(weight / scales[:, None]).astype(np.int8), scales)


class PackedMatrix(NamedTuple):
    """A weight (M, X) in the layout that kernels.h describes."""

    data: Shaped[np.ndarray, "..."]
    scales: Float[np.ndarray, "N R"] | None
    corrections: Int[np.ndarray, "N R"] | None
    height: int
    width: int
    parts: int
    kind: int

    @property
    def structure(self) -> Matrix:
        """The argument for C; it is valid while this object lives."""
        pointers = map(address, (self.data, self.scales, self.corrections))
        return Matrix(*pointers, self.height, self.width, self.parts, self.kind)


def pack(
    weight: Weight, *, parts: int = 1, dynamic: bool = False, activation_bits: Literal[8, 16] = 8
) -> PackedMatrix:
    """Pack a weight for `multiply` and the LSTM.

    Args:
        weight: The matrix.
        parts: Number of equal parts of its rows whose panels are interleaved: the gates of an LSTM.
        dynamic: Dynamic quantization: quantize float rows here, and activations at run time.
            The CPU must have int8 dot products. Otherwise products are exact; int8 rows stay int8.
        activation_bits: Bits of the activations, with `dynamic`: W8A8 or W8A16.
    """
    if dynamic:
        rows = weight if isinstance(weight, Int8Matrix) else quantize_rows(weight)
        kind = INT8_DYNAMIC if activation_bits == 8 else INT8_DYNAMIC16
        return _pack_for_int8_dot(rows, parts, kind)
    if isinstance(weight, Int8Matrix):
        if has_int8_dot():
            return _pack_for_int8_dot(weight, parts, INT8_SPLIT)
        return pack_for_floats(weight, parts=parts)
    height, width = weight.shape
    return PackedMatrix(_by_panel(weight, parts), None, None, height, width, parts, FLOAT32)


def pack_for_floats(weight: Int8Matrix, *, parts: int = 1) -> PackedMatrix:
    """Pack int8 rows for a CPU without int8 dot products, which converts them to floats."""
    (height, width), (numbers, scales) = weight.shape, (_by_panel(each, parts) for each in weight)
    return PackedMatrix(numbers, scales, None, height, width, parts, INT8_WEIGHTS)


def _pack_for_int8_dot(weight: Int8Matrix, parts: int, kind: int) -> PackedMatrix:
    """Pack int8 rows for int8 dot products, four columns of a row side by side."""
    library = _library()
    assert library is not None
    height, width = weight.shape
    numbers = np.pad(weight.numbers, ((0, 0), (0, -width % 4)))
    sums = numbers.sum(axis=1, dtype=np.int32) * np.int32(-library.elmore_u8_offset())
    panels = _by_panel(numbers, parts)  # (N, X, R)
    num_panels, _, num_rows = panels.shape
    fours = panels.reshape(num_panels, -1, 4, num_rows).swapaxes(2, 3)  # (N, X / 4, R, 4)
    data = empty(fours.shape, fours.dtype)
    data[...] = fours
    scales, corrections = (_by_panel(each, parts) for each in (weight.scales, sums))
    return PackedMatrix(data, scales, corrections, height, width, parts, kind)


def _by_panel(rows: Shaped[np.ndarray, "..."], parts: int) -> Shaped[np.ndarray, "..."]:
    """Lay out rows, or one number per row, in panels: (N * parts, X, R), or (N * parts, R)."""
    library = _library()
    assert library is not None
    part_rows, panel_rows = len(rows) // parts, library.elmore_panel_rows()
    width = rows.shape[1:]
    num_panels = -(-part_rows // panel_rows)
    panels = empty((num_panels, parts, *width, panel_rows), rows.dtype)
    panels[-1] = 0  # the last panel may have fewer rows
    for number, part in enumerate(rows.reshape(parts, part_rows, *width)):
        for panel in range(num_panels):
            block = part[panel * panel_rows : (panel + 1) * panel_rows]
            panels[panel, number, ..., : len(block)] = block.T
    return panels.reshape(num_panels * parts, *width, panel_rows)


def multiply(
    weight: PackedMatrix,
    rows: Float[np.ndarray, "B X"],
    bias: Float[np.ndarray, " M"] | None = None,
) -> Float[np.ndarray, "B M"]:
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
    rows = np.ascontiguousarray(rows, np.float32)
    bias = None if bias is None else np.ascontiguousarray(bias, np.float32)
    assert bias is None or bias.shape == (weight.height,)
    out = empty((len(rows), weight.height))
    call = _Product(
        weight.structure,
        *map(address, (rows, bias, out)),
        len(rows),
        num_threads_for(len(rows) * weight.height * weight.width),
    )
    library.elmore_multiply(call)
    return out


def run_lstm(layers: "ctypes.Array[LSTMCall]") -> None:
    """Run layers one after another; `elmore.model.lstm.native` makes the calls."""
    library = _library()
    assert library is not None
    library.elmore_run_lstm(layers, len(layers))


def run_char_cnn(
    embedding: Float[np.ndarray, "V E"],
    characters: Int[np.ndarray, "B C"],
    banks: Sequence[PackedMatrix],
    bias: Float[np.ndarray, " F"],
) -> Float[np.ndarray, "B F"]:
    """Return the maximum of every filter over the windows of each word, and its bias.

    The ids must be rows of the embedding, and C at least the widest filter.
    """
    library = _library()
    assert library is not None
    characters = np.ascontiguousarray(characters, np.int64)
    out = empty((len(characters), len(bias)))
    structures = (Matrix * len(banks))(*(bank.structure for bank in banks))
    call = _CharCNNCall(
        ctypes.addressof(structures),
        *map(address, (bias, embedding, characters, out)),
        *(len(banks), *characters.shape, embedding.shape[1], len(bias)),
        num_threads_for(characters.size * sum(bank.data.size for bank in banks)),
    )
    library.elmore_run_char_cnn(call)
    return out


def run_highway(
    gate: Float[np.ndarray, "B F"],
    transform: Float[np.ndarray, "B F"],
    x: Float[np.ndarray, "B F"],
) -> Float[np.ndarray, "B F"]:
    """Return sigmoid(gate) * relu(transform) + (1 - sigmoid(gate)) * x."""
    library = _library()
    assert library is not None
    gate, transform, x = map(np.ascontiguousarray, (gate, transform, x))
    out = empty(x.shape)
    pointers = map(address, (gate, transform, x, out))
    library.elmore_run_highway(_HighwayCall(*pointers, x.size, num_threads_for(8 * x.size)))
    return out


def run_tanh(values: Float[np.ndarray, "B F"]) -> Float[np.ndarray, "B F"]:
    """Return the tanh of every element."""
    library = _library()
    assert library is not None
    out = np.array(values, np.float32, order="C")
    library.elmore_run_tanh(_TanhCall(address(out), out.size, num_threads_for(8 * out.size)))
    return out


def log_sum_exp(values: Float[np.ndarray, "M V"]) -> Float[np.ndarray, " M"]:
    """Return log sum exp(values) of every row."""
    library = _library()
    assert library is not None
    values, out = np.ascontiguousarray(values, np.float32), empty((len(values),))
    pointers = map(address, (values, out))
    threads = num_threads_for(8 * values.size)
    library.elmore_log_sum_exp(_LogSumCall(*pointers, *values.shape, threads))
    return out


def empty(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> Shaped[np.ndarray, "..."]:
    """Return an array that is not initialised and begins with a cache line.

    numpy aligns to 16 bytes, and a vector that lies in two lines is loaded at half the speed.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % _CACHE_LINE
    return memory[begin : begin + size].view(dtype).reshape(shape)


def address(array: Shaped[np.ndarray, "..."] | None) -> int | None:
    """Return the pointer for C; it is valid while the array lives."""
    return None if array is None else array.ctypes.data
