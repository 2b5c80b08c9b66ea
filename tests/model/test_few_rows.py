"""A weight times a few rows, in C: the product that it should be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.model.lstm_kernels import in_c

pytestmark = pytest.mark.skipif(not in_c.available(), reason="no C compiler is here")


@given(st.integers(2, 8), st.integers(1, 200), st.integers(1, 70), st.booleans())
@settings(max_examples=60)
def test_the_product_is_that_of_the_definition(num_rows, height, width, columns):
    weight, rows = torch.randn(height, width), torch.randn(num_rows, width)
    out = torch.full((height, num_rows) if columns else (num_rows, height), torch.nan)
    assert in_c.few_rows(weight, rows, out if columns else out.T)
    expected = weight.double() @ rows.T.double()
    assert_close((out if columns else out.T).double(), expected, rtol=1e-5, atol=1e-5)


def test_rows_may_lie_in_columns():
    weight, rows = torch.randn(30, 20), torch.randn(20, 4).T
    out = torch.empty(30, 4)
    assert in_c.few_rows(weight, rows, out)
    assert_close(out, weight @ rows.T)


def test_a_row_gets_the_same_bits_in_any_company_of_that_number():
    weight, rows = torch.randn(64, 40), torch.randn(5, 40)
    one, other = torch.empty(64, 5), torch.empty(64, 5)
    in_c.few_rows(weight, rows, one)
    in_c.few_rows(weight, torch.cat([rows[:1], torch.randn(4, 40)]), other)
    assert torch.equal(one[:, 0], other[:, 0])


@pytest.mark.parametrize("num_rows", [1, 9])
def test_other_numbers_of_rows_are_left_to_torch(num_rows):
    assert not in_c.few_rows(torch.randn(8, 8), torch.randn(num_rows, 8), torch.empty(8, num_rows))


def test_double_precision_and_strided_weights_are_left_to_torch():
    rows, out = torch.randn(2, 8), torch.empty(8, 2)
    assert not in_c.few_rows(torch.randn(8, 8).double(), rows, out)
    assert not in_c.few_rows(torch.randn(8, 8).T, rows, out)


def test_numbers_that_are_none_stay_none():
    weight, rows, out = torch.ones(4, 8), torch.ones(2, 8), torch.empty(4, 2)
    rows[1, 3] = torch.nan
    in_c.few_rows(weight, rows, out)
    assert torch.equal(out.isnan(), torch.tensor([[False, True]] * 4))
