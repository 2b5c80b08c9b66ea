"""The projected LSTM for many rows on a CPU: against the definition in double precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.model.lstm import in_c, many_rows, reference
from elmore.model.lstm.reference import LSTMState, LSTMWeights, StateReset

pytestmark = pytest.mark.skipif(
    many_rows._library() is None, reason="no CPU whose vectors the C knows, or no C compiler"
)
HOW = {"forget_bias": 1.0, "cell_clip": 1.0, "output_clip": 0.5}


def layer(
    cells: int, width: int, *, inputs: int | None = None, projection: bool = True
) -> LSTMWeights:
    """Weights of such a size that a rounding does not grow from step to step."""
    widths = (width if inputs is None else inputs, width)
    matrices = (torch.randn(4 * cells, each) / each**0.5 for each in widths)
    projected = torch.randn(width, cells) / cells**0.5 if projection else None
    return LSTMWeights(*matrices, torch.randn(4 * cells), projected)


def state(num_rows: int, cells: int, width: int) -> LSTMState:
    return LSTMState(torch.randn(num_rows, width), torch.randn(num_rows, cells))


def exact(part):
    """The same in double precision; None stays None."""
    if isinstance(part, torch.Tensor):
        return part.double() if part.is_floating_point() else part
    return part if part is None else type(part)(*map(exact, part))


@given(
    num_rows=st.integers(9, 120),
    num_steps=st.integers(1, 12),
    cells=st.integers(1, 6).map(lambda n: 8 * n),
    width=st.integers(1, 5).map(lambda n: 8 * n),
    wide=st.integers(1, 20),
    projection=st.booleans(),
    driven=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_steps_are_those_of_the_definition(
    num_rows, num_steps, cells, width, wide, projection, driven, seed
):
    torch.manual_seed(seed)
    width = width if projection else cells
    weights = layer(cells, width, inputs=wide, projection=projection)
    start, inputs = state(num_rows, cells, width), torch.randn(num_rows, num_steps, wide)
    if driven:
        inputs = reference.project_inputs(inputs, weights.input)
        weights = weights._replace(input=None)
    mask, at = torch.rand(2, num_rows, num_steps) < torch.rand(2, 1, 1)
    resets = StateReset(at, state(num_rows, cells, width)) if seed % 2 else None
    assert many_rows.can_run(inputs, mask, start, weights)
    found = many_rows.run(inputs, mask, start, weights, **HOW, resets=resets)
    given = exact(inputs), mask, exact(start), exact(weights)
    expected = reference.run(*given, **HOW, resets=exact(resets))
    assert_close(exact(found[0]), expected[0], rtol=0, atol=1e-5)
    for part, there in zip(exact(found[1]), expected[1], strict=True):
        assert_close(part, there, rtol=0, atol=1e-5)


def test_a_sentence_has_the_same_bits_in_any_company():
    weights, start, inputs = layer(16, 8), state(30, 16, 8), torch.randn(30, 5, 8)
    mask = torch.ones(30, 5, dtype=torch.bool)
    found, _ = many_rows.run(inputs, mask, start, weights, **HOW)
    some = torch.randperm(30)[:11]
    fewer = LSTMState(*(part[some] for part in start))
    again, _ = many_rows.run(inputs[some], mask[some], fewer, weights, **HOW)
    assert torch.equal(again, found[some])


def test_without_clips_nothing_is_clipped():
    weights, start, inputs = layer(16, 8), state(9, 16, 8), 10 * torch.randn(9, 7, 8)
    mask, free = torch.ones(9, 7, dtype=torch.bool), {"cell_clip": None, "output_clip": None}
    found, _ = many_rows.run(inputs, mask, start, weights, forget_bias=1.0, **free)
    expected, _ = reference.run(inputs, mask, start, weights, forget_bias=1.0, **free)
    assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert found.abs().max() > HOW["output_clip"]


def test_a_nan_stays_with_its_sentence():
    weights, start, inputs = layer(16, 8), state(20, 16, 8), torch.randn(20, 4, 8)
    inputs[3, 1] = float("nan")
    mask = torch.ones(20, 4, dtype=torch.bool)
    found, _ = many_rows.run(inputs, mask, start, weights, **HOW)
    assert found.isnan().all(dim=2).nonzero().tolist() == [[3, 1], [3, 2], [3, 3]]


def test_what_is_given_is_left_as_it_is():
    weights, start = layer(16, 8), state(9, 16, 8)
    driven = reference.project_inputs(torch.randn(9, 3, 8), weights.input)
    kept = [part.clone() for part in (driven, *start)]
    mask = torch.ones(9, 3, dtype=torch.bool)
    many_rows.run(driven, mask, start, weights._replace(input=None), **HOW)
    assert all(map(torch.equal, kept, (driven, *start)))


def test_a_state_that_came_back_may_be_given_again():
    weights, inputs = layer(16, 8), torch.randn(12, 6, 8)
    mask, start = torch.ones(12, 6, dtype=torch.bool), state(12, 16, 8)
    whole, end = many_rows.run(inputs, mask, start, weights, **HOW)
    first, middle = many_rows.run(inputs[:, :2], mask[:, :2], start, weights, **HOW)
    kept = [part.clone() for part in middle]
    second, ends = many_rows.run(inputs[:, 2:], mask[:, 2:], middle, weights, **HOW)
    assert torch.equal(torch.cat([first, second], dim=1), whole)
    assert all(map(torch.equal, ends, end))
    assert all(map(torch.equal, middle, kept))


def test_from_nine_rows_on_all_is_in_c(monkeypatch):
    ran, run = [], many_rows.run

    def watched(*given, **how):
        ran.append(len(given[0]))
        return run(*given, **how)

    monkeypatch.setattr(many_rows, "run", watched)
    for num_rows in (8, 9):
        mask = torch.ones(num_rows, 2, dtype=torch.bool)
        in_c.run(torch.randn(num_rows, 2, 8), mask, state(num_rows, 16, 8), layer(16, 8), **HOW)
    assert ran == [9]


@pytest.mark.parametrize("num_rows", [5, 12])
def test_what_does_not_fit_is_refused(num_rows):
    weights, mask = layer(16, 8), torch.ones(num_rows, 2, dtype=torch.bool)
    inputs, start = torch.randn(num_rows, 2, 8), state(num_rows, 16, 8)
    for wrong in (
        (inputs, mask, state(num_rows - 1, 16, 8)),
        (inputs[:, :, :7], mask, start),
    ):
        with pytest.raises(ValueError, match="as many rows"):
            in_c.run(*wrong, weights, **HOW)


def test_resets_of_other_rows_are_refused():
    weights, mask = layer(16, 8), torch.ones(12, 2, dtype=torch.bool)
    given = torch.randn(12, 2, 8), mask, state(12, 16, 8), weights
    with pytest.raises(ValueError, match="other rows"):
        many_rows.run(*given, **HOW, resets=StateReset(mask, state(11, 16, 8)))


def test_others_are_for_others():
    def can_run(num_rows=9, cells=16, width=8, dtype=torch.float, **changed):
        start = LSTMState(*(part.to(dtype) for part in state(num_rows, cells, width)))
        mask = torch.ones(num_rows, 3, dtype=torch.bool)
        inputs = torch.randn(num_rows, 3, width, dtype=dtype)
        return many_rows.can_run(inputs, mask, start, layer(cells, width)._replace(**changed))

    assert can_run()
    assert not can_run(num_rows=8)
    assert not can_run(cells=12)
    assert not can_run(width=12)
    assert not can_run(dtype=torch.double)
    assert not can_run(recurrent=torch.randn(8, 64).T)
