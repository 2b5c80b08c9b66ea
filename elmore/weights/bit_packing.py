"""Rows of small numbers in bytes: two numbers of 4 bits in a byte, or four of 2 bits.

The first number of a byte is in its lowest bits.

Shapes: R rows, C numbers in a row, W bytes in a row, C * bits / 8.
"""

import numpy as np
from jaxtyping import UInt8


def pack_bits(numbers: UInt8[np.ndarray, "R C"], bits: int) -> UInt8[np.ndarray, "R W"]:
    """Return numbers below 2^bits in bytes, which each row must fill."""
    per_byte = 8 // bits
    columns = (numbers[:, place::per_byte] << (bits * place) for place in range(per_byte))
    return np.bitwise_or.reduce(list(columns)).astype(np.uint8)


def unpack_bits(packed: UInt8[np.ndarray, "R W"], bits: int) -> UInt8[np.ndarray, "R C"]:
    """Return the numbers in rows of bytes."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    table = (np.arange(256, dtype=np.uint8)[:, None] >> shifts) & (2**bits - 1)
    return table.take(packed, axis=0).reshape(len(packed), packed.shape[1] * 8 // bits)
