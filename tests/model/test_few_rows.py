"""Few rows, all in C: the product and the steps that they should be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.model.lstm import few_rows, in_c, reference
from elmore.model.lstm.reference import LSTMState, LSTMWeights, StateReset

pytestmark = pytest.mark.skipif(not in_c.available(), reason="no C compiler is here")


@given(st.integers(1, 20), st.integers(1, 200), st.integers(1, 1024), st.booleans())
@settings(max_examples=60)
def test_the_product_is_that_of_the_definition(num_rows, height, width, columns):
    weight, rows = torch.randn(height, width) / width**0.5, torch.randn(num_rows, width)
    out = torch.full((height, num_rows) if columns else (num_rows, height), torch.nan)
    few_rows.multiply(weight, rows, out if columns else out.T)
    expected = weight.double() @ rows.T.double()
    assert_close((out if columns else out.T).double(), expected, rtol=0, atol=1e-5)


def test_a_row_gets_the_same_bits_in_any_company_of_that_number():
    weight, rows = torch.randn(64, 40), torch.randn(5, 40)
    one, other = torch.empty(64, 5), torch.empty(64, 5)
    few_rows.multiply(weight, rows, one)
    few_rows.multiply(weight, torch.cat([rows[:1], torch.randn(4, 40)]), other)
    assert torch.equal(one[:, 0], other[:, 0])


def test_numbers_that_are_none_stay_none():
    weight, rows, out = torch.ones(4, 8), torch.ones(2, 8), torch.empty(4, 2)
    rows[1, 3] = torch.nan
    few_rows.multiply(weight, rows, out)
    assert torch.equal(out.isnan(), torch.tensor([[False, True]] * 4))


def layer(cells: int, width: int, *, projection: bool = True) -> LSTMWeights:
    """Weights of such a size that a rounding does not grow from step to step."""
    matrices = (torch.randn(4 * cells, width) / width**0.5 for _ in range(2))
    projected = torch.randn(width, cells) / cells**0.5 if projection else None
    return LSTMWeights(*matrices, torch.randn(4 * cells), projected)


def how(**more):
    return {"forget_bias": 1.0, "cell_clip": 1.0, "output_clip": 0.5, **more}


@given(
    num_rows=st.integers(1, 8),
    num_steps=st.integers(1, 30),
    cells=st.integers(1, 70),
    width=st.integers(1, 40),
    projection=st.booleans(),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_steps_are_those_of_the_definition(num_rows, num_steps, cells, width, projection, data):
    width = width if projection else cells
    weights = layer(cells, width, projection=projection)
    inputs = torch.randn(num_rows, num_steps, width)
    state = LSTMState(torch.randn(num_rows, width), torch.randn(num_rows, cells))
    flags = st.lists(st.booleans(), min_size=num_rows * num_steps, max_size=num_rows * num_steps)
    mask, at = (torch.tensor(data.draw(flags)).view(num_rows, num_steps) for _ in range(2))
    fresh = LSTMState(torch.randn(num_rows, width), torch.randn(num_rows, cells))
    resets = StateReset(at, fresh) if data.draw(st.booleans()) else None
    assert few_rows.can_run(inputs, mask, state, weights)
    found, end = few_rows.run(inputs, mask, state, weights, **how(resets=resets))
    double = [None if w is None else w.double() for w in weights]
    exact = StateReset(at, LSTMState(*(part.double() for part in fresh))) if resets else None
    start = LSTMState(*(part.double() for part in state))
    expected, ends = reference.run(
        inputs.double(), mask, start, LSTMWeights(*double), **how(resets=exact)
    )
    assert_close(found.double(), expected, rtol=0, atol=1e-5)
    for part, there in zip(end, ends, strict=True):
        assert_close(part.double(), there, rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_rows", [1, 2, 8])
def test_cells_may_be_many(num_rows):
    weights, inputs = layer(2100, 5), torch.randn(num_rows, 4, 5)
    state = LSTMState(torch.randn(num_rows, 5), torch.randn(num_rows, 2100))
    mask = torch.ones(num_rows, 4, dtype=torch.bool)
    found, _ = few_rows.run(inputs, mask, state, weights, **how())
    expected, _ = reference.run(inputs, mask, state, weights, **how())
    assert_close(found, expected, rtol=0, atol=1e-5)


def test_without_clips_nothing_is_clipped():
    weights, inputs = layer(6, 5), 10 * torch.randn(2, 7, 5)
    state, mask = (
        LSTMState(torch.zeros(2, 5), torch.zeros(2, 6)),
        torch.ones(2, 7, dtype=torch.bool),
    )
    free = how(cell_clip=None, output_clip=None)
    found, _ = few_rows.run(inputs, mask, state, weights, **free)
    expected, _ = reference.run(inputs, mask, state, weights, **free)
    assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert found.abs().max() > how()["output_clip"]


def test_what_is_given_is_left_as_it_is():
    weights, inputs = layer(6, 5), torch.randn(2, 3, 5)
    state, mask = LSTMState(torch.ones(2, 5), torch.ones(2, 6)), torch.ones(2, 3, dtype=torch.bool)
    driven = reference.project_inputs(inputs, weights.input).contiguous()
    before = driven.clone()
    few_rows.run(driven, mask, state, weights._replace(input=None), **how())
    assert torch.equal(driven, before)
    assert all(torch.equal(part, torch.ones_like(part)) for part in state)


def test_more_rows_double_precision_and_strided_weights_are_for_others():
    def can_run(num_rows: int, weights: LSTMWeights, dtype: torch.dtype = torch.float) -> bool:
        state = LSTMState(
            torch.zeros(num_rows, 5, dtype=dtype), torch.zeros(num_rows, 6, dtype=dtype)
        )
        mask = torch.ones(num_rows, 3, dtype=torch.bool)
        return few_rows.can_run(torch.randn(num_rows, 3, 5, dtype=dtype), mask, state, weights)

    weights = layer(6, 5)
    assert can_run(8, weights)
    assert not can_run(9, weights)
    assert not can_run(0, weights)
    assert not can_run(2, weights, torch.double)
    assert not can_run(2, weights._replace(recurrent=torch.randn(5, 24).T))
    wide = LSTMState(torch.zeros(2, 1025), torch.zeros(2, 6))
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert not few_rows.can_run(torch.randn(2, 3, 1025), mask, wide, layer(6, 1025))


@pytest.mark.parametrize("sizes", [(5, 6, 0), (0, 6, 5), (5, 0, 0)])
def test_a_sum_of_nothing_is_zero(sizes):
    input_width, cells, width = sizes
    weights = LSTMWeights(
        torch.ones(4 * cells, input_width),
        torch.ones(4 * cells, width),
        torch.ones(4 * cells),
        torch.ones(width, cells),
    )
    state = LSTMState(torch.ones(2, width), torch.ones(2, cells))
    given = torch.ones(2, 3, input_width), torch.ones(2, 3, dtype=torch.bool), state, weights
    assert not few_rows.can_run(*given)  # which would leave what there is in memory
    found, expected = in_c.run(*given, **how()), reference.run(*given, **how())
    assert_close(found, expected)


def test_whoever_does_not_read_may_lie_anywhere_in_memory():
    weights, inputs = layer(6, 5), torch.randn(3, 4, 5)
    state = LSTMState(torch.zeros(3, 5), torch.zeros(3, 6))
    mask = torch.rand(8, 6).gt(0.5)[::2, ::2].T
    assert not mask.is_contiguous()
    found, expected = (
        kernel.run(inputs, mask, state, weights, **how()) for kernel in (few_rows, reference)
    )
    assert_close(found, expected, rtol=0, atol=1e-5)
