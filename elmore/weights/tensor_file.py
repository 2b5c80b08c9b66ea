"""A safetensors file of weights, checked when it is read: arrays of numpy, in the file's memory.

`storage.py` writes it, and says how matrices are stored in int8 or in fewer bits.
"""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int8, Shaped, UInt8
from safetensors import SafetensorError, safe_open

from elmore import strict_json
from elmore.errors import ElmoreError, WeightsError
from elmore.model.native import Int8Matrix
from elmore.weights.bit_packing import unpack_bits

Shape = tuple[int, ...]
SCALE = ".scale"  # suffix of the name of a tensor with the scales of another

_BF16 = "BF16"
_DTYPES = {
    **{"F64": np.float64, "F32": np.float32, "F16": np.float16, _BF16: np.uint16, "I8": np.int8},
    **{"I64": np.int64, "I32": np.int32, "I16": np.int16, "U8": np.uint8, "BOOL": np.bool_},
}
_MAX_SCALE = np.finfo(np.float32).max / 128
_FLOATS = ("F64", "F32", "F16", _BF16)


def read(
    path: Path,
    expected: Mapping[str, Shape],
    optional: Mapping[str, Shape] | None = None,
    matrices: Set[str] = frozenset(),
    bits: Mapping[str, int] | None = None,
) -> dict[str, Float[np.ndarray, "..."] | Int8Matrix]:
    """Read a file as float32, memory-mapped if it is stored so.

    Args:
        path: The file.
        expected: The shapes of the tensors that it must have, by name.
        optional: Further tensors: it must have all or none of them.
        matrices: Names of matrices that stay int8 if they are stored so.
        bits: Matrices whose numbers are packed into bytes, with the bits of a number.

    Raises:
        WeightsError: The file is damaged, or of another model.
    """
    try:
        file = _File(path)
    except (OSError, SafetensorError, ElmoreError, ValueError) as error:
        raise WeightsError(f"{path}: not a readable safetensors file ({error})") from error
    names = match_scales(set(file.header))
    if optional and not optional.keys().isdisjoint(names):
        expected = {**expected, **optional}
    _check_names(set(names), set(expected), path)
    arrays: dict[str, Float[np.ndarray, ...] | Int8Matrix] = {}
    for name, scale in names.items():
        shape, wanted = file.shape(name), expected[name]
        packed = (bits or {}).get(name, 0)
        stored = (*wanted[:-1], wanted[-1] * packed // 8) if packed else wanted
        if shape != stored:
            raise WeightsError(
                f"{path}: {name} has shape {shape}, config.json asks for {stored}; are they of the "
                "same model?"
            )
        if scale is None and not packed:
            arrays[name] = file.floats(name)
        else:
            rows = file.int8_rows(name, scale, packed)
            arrays[name] = rows if name in matrices else rows.dense().reshape(wanted)
    return arrays


def match_scales(names: set[str]) -> dict[str, str | None]:
    """Return the tensors of a file, each with the name of its scales or None."""
    scales = {name for name in names if name.endswith(SCALE) and name.removesuffix(SCALE) in names}
    return {name: name + SCALE if name + SCALE in scales else None for name in names - scales}


class _File:
    """A memory-mapped file; its arrays may be written to, which does not change the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with safe_open(path, framework="numpy"):
            pass  # it has checked the header
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = strict_json.parse(file.read(size), str(path))
        self.header: dict[str, dict[str, Any]] = {
            name: entry for name, entry in header.items() if name != "__metadata__"
        }
        self._begin = 8 + size
        self._bytes = np.memmap(path, np.uint8, mode="c")

    def shape(self, name: str) -> Shape:
        return tuple(self.header[name]["shape"])

    def floats(self, name: str) -> Float[np.ndarray, "..."]:
        """Return floats as float32, in which they must be finite."""
        dtype = self.header[name]["dtype"]
        if dtype not in _FLOATS:
            raise WeightsError(
                f"{self._path}: {name} has {self._dtype(name)}, expected float16, bfloat16, "
                "float32 or float64"
            )
        array = self._array(name)
        if dtype == _BF16:  # the upper half of float32
            array = (array.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):  # what exceeds float32 becomes infinite
            array = array.astype(np.float32, copy=False)
        if not _is_finite(array):
            count = int((~np.isfinite(array)).sum())
            raise WeightsError(
                f"{self._path}: {name} has {count} values that are not finite in float32; the file "
                "is damaged or its training diverged: use another copy"
            )
        return array

    def int8_rows(self, name: str, scale: str | None, bits: int) -> Int8Matrix:
        """Return rows of int8, or with `bits` what is packed into bytes, and their scales."""
        shape, scales = self.shape(name), self.shape(scale) if scale else None
        dtype = self.header[name]["dtype"]
        if (
            scale is None
            or dtype != ("U8" if bits else "I8")
            or len(shape) < 2
            or scales != shape[:1]
        ):
            wanted = f"bytes, each of {8 // bits} numbers," if bits else "rows of int8"
            found = f"its scale has shape {scales}" if scale else "has no scale"
            raise WeightsError(
                f"{self._path}: {name} is {self._dtype(name)} of shape {shape} and {found}; "
                f"expected {wanted} and one scale per row"
            )
        factors = self.floats(scale)
        if factors.size and np.abs(factors).max() > _MAX_SCALE:
            raise WeightsError(
                f"{self._path}: {scale} has a value of {np.abs(factors).max():.3g}, with which "
                "int8 exceeds float32; the file is damaged: use another copy"
            )
        rows = self._array(name).reshape(shape[0], -1)
        return Int8Matrix(_odd_numbers(rows, bits) if bits else rows, factors)

    def _dtype(self, name: str) -> str:
        dtype = self.header[name]["dtype"]
        return np.dtype(_DTYPES[dtype]).name if dtype in _DTYPES else dtype

    def _array(self, name: str) -> Shaped[np.ndarray, "..."]:
        begin, end = (self._begin + offset for offset in self.header[name]["data_offsets"])
        dtype = _DTYPES[self.header[name]["dtype"]]
        array = np.ndarray(self.shape(name), dtype, self._bytes[begin:end])
        return np.require(array, requirements="A")


def _odd_numbers(packed: UInt8[np.ndarray, "R W"], bits: int) -> Int8[np.ndarray, "R C"]:
    """Return the numbers of `model/rounding.py`."""
    return 2 * unpack_bits(packed, bits).view(np.int8) - np.int8(2**bits - 1)


def _is_finite(array: Float[np.ndarray, "..."]) -> bool:
    return not array.size or bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def _check_names(found: set[str], expected: set[str], path: Path) -> None:
    missing = sorted(expected - found)
    if missing:
        raise WeightsError(f"{path}: {missing[0]} is missing; is config.json of the same model?")
    unknown = sorted(found - expected)
    if unknown:
        raise WeightsError(
            f"{path}: {unknown[0]} is not part of the network of config.json; are they of the same "
            "model?"
        )
