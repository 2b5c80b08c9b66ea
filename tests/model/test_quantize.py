import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.model.quantize import Int8Rows, dense
from tests.support.int8 import quantize_rows


@given(st.integers(1, 20), st.integers(1, 40), st.integers(0, 99))
def test_rows_are_rounded_to_their_own_scale(height, width, seed):
    weight = torch.randn(height, width, generator=torch.Generator().manual_seed(seed))
    weight[0] = 0
    rows = quantize_rows(weight)
    assert rows.shape == weight.shape
    assert rows.numbers.abs().max() <= 127
    error = (rows.dense() - weight).abs().amax(dim=1)
    assert (error <= 0.51 * rows.scales).all()
    assert not rows.dense()[0].any()


def test_a_matrix_of_either_kind_is_made_dense():
    rows = Int8Rows(torch.tensor([[1, -2]], dtype=torch.int8), torch.tensor([0.5]))
    assert dense(rows).tolist() == [[0.5, -1.0]]
    plain = torch.ones(2, 2)
    assert dense(plain) is plain
    assert_close(rows.double().dense(), torch.tensor([[0.5, -1.0]]).double())
