"""Small numbers in bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.weights.bit_packing import pack_bits, unpack_bits


@given(st.sampled_from([2, 4]), st.integers(0, 5), st.integers(0, 9), st.integers(0, 2**31))
def test_what_was_packed_comes_back(bits, rows, width, seed):
    numbers = np.random.default_rng(seed).integers(0, 2**bits, (rows, width * 8 // bits), np.uint8)
    packed = pack_bits(numbers, bits)
    assert packed.shape == (rows, width)
    assert (unpack_bits(packed, bits) == numbers).all()


@pytest.mark.parametrize(
    ("bits", "numbers", "byte"), [(2, [1, 2, 3, 0], 0b00_11_10_01), (4, [5, 9], 0b1001_0101)]
)
def test_the_first_number_is_in_the_lowest_bits(bits, numbers, byte):
    assert pack_bits(np.array([numbers], np.uint8), bits).tolist() == [[byte]]
