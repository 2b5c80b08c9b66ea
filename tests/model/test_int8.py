import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.errors import ConfigError
from elmore.model import int8
from elmore.model.config import LSTMConfig
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.lstm.reference import LSTMState, StateReset

CPU = torch.device("cpu")
works = pytest.mark.skipif(
    not int8.works(CPU), reason="this CPU has no dot products of bytes, or no compiler"
)
sizes, counts = st.integers(1, 40), st.integers(1, 120)


def rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round rows to -127..127, each to its own scale, as the definition has it."""
    scales = x.abs().amax(dim=1, keepdim=True) / 127
    return (x / torch.where(scales == 0, 1, scales)).round(), scales


@works
@given(counts, sizes, counts, st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_a_product_is_that_of_whole_numbers(rows, width, columns, by_column, turned, seed):
    torch.manual_seed(seed)
    weight, x = torch.randn(rows, width), torch.randn(columns, width)
    x[0] = 0
    given = x.T.contiguous() if by_column else x.T
    out = torch.full((columns, rows), torch.nan).T if turned else torch.full((rows, columns), 7.0)
    int8.Int8Product(weight)(given, out)
    (w, scales), (q, others) = rounded(weight), rounded(x)
    # A quotient that ends in a half may be rounded either way: one part in 127 of one element.
    close = {"rtol": 1e-5, "atol": (scales.max() * others.max() * 127).item()}
    assert_close(out, (w.double() @ q.T.double()).float() * scales * others.T, **close)


@works
@given(sizes, sizes, st.integers(2, 60), st.integers(0, 2**31))
def test_a_column_has_the_same_bits_in_any_company(rows, width, columns, seed):
    torch.manual_seed(seed)
    product, x = int8.Int8Product(torch.randn(rows, width)), torch.randn(columns, width)
    together = torch.empty(rows, columns)
    product(x.T, together)
    for number in range(columns):
        alone = torch.empty(rows, 1)
        product(x[number : number + 1].T, alone)
        assert torch.equal(alone[:, 0], together[:, number])
    fewer = torch.empty(rows, columns - 1)
    product(x[1:].T.contiguous(), fewer)
    assert torch.equal(fewer, together[:, 1:])


@works
@pytest.mark.parametrize("rows", [1, 8, 9, 60])
def test_threads_change_no_bit(use_threads, rows):
    exact = ProjectedLSTM(LSTMConfig(cell_dim=1024, output_dim=64)).requires_grad_(False)
    layer = int8.Int8LSTM(exact)
    inputs, mask = torch.randn(rows, 6, 64), torch.rand(rows, 6) < 0.9
    state = LSTMState(torch.randn(rows, 64), torch.randn(rows, 1024))
    use_threads(1)
    alone, end = layer(inputs, mask, state)
    for threads in (2, 3):
        use_threads(threads)
        found, after = layer(inputs, mask, state)
        for one, other in ((alone, found), *zip(end, after, strict=True)):
            assert torch.equal(one, other)


@works
@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize("clip", [0.5, None])
@pytest.mark.parametrize("resets", [True, False])
@pytest.mark.parametrize("cells", [40, 41])
@pytest.mark.parametrize("times", [1, 3, 10])
def test_a_layer_is_the_exact_one_but_for_rounding(projection, clip, resets, cells, times):
    torch.manual_seed(0)
    width = 24 if projection else cells
    config = LSTMConfig(
        cell_dim=cells, output_dim=width, projection=projection, cell_clip=clip, output_clip=clip
    )
    exact = ProjectedLSTM(config).requires_grad_(False)
    torch.nn.init.normal_(exact.bias)
    rows = 6 * times
    inputs = torch.randn(rows, 9, width)
    mask = torch.arange(9) < torch.tensor([[9], [0], [1], [5], [9], [8]] * times)
    state, to = (LSTMState(torch.randn(rows, width), torch.randn(rows, cells)) for _ in range(2))
    anew = StateReset(torch.rand(rows, 9) < 0.3, to) if resets else None
    expected, end = exact(inputs, mask, state, anew)
    layer = int8.Int8LSTM(exact)
    found, found_end = layer(inputs, mask, state, anew)
    for ours, theirs in ((found, expected), (found_end.cell, end.cell)):
        assert (ours - theirs).norm() < 0.02 * theirs.norm()
    assert not found[~mask].any()
    assert (found != expected).any()
    driven, driven_end = layer(layer.project_inputs(inputs), mask, state, anew, projected=True)
    assert torch.equal(driven, found)
    assert torch.equal(driven_end.cell, found_end.cell)


@works
@pytest.mark.parametrize("projection", [True, False])
def test_a_sentence_has_the_same_bits_in_any_company(projection):
    config = LSTMConfig(cell_dim=32, output_dim=24 if projection else 32, projection=projection)
    layer = int8.Int8LSTM(ProjectedLSTM(config).requires_grad_(False))
    inputs, mask = torch.randn(30, 5, config.output_dim), torch.ones(30, 5, dtype=torch.bool)
    state = LSTMState(torch.randn(30, config.output_dim), torch.randn(30, 32))
    found, _ = layer(inputs, mask, state)
    some = torch.randperm(30)[:11]
    fewer = LSTMState(*(part[some] for part in state))
    again, _ = layer(inputs[some], mask[some], fewer)
    assert torch.equal(again, found[some])


@works
@pytest.mark.parametrize("num_rows", [8, 9])
def test_a_nan_stays_with_its_sentence(num_rows):
    layer = int8.Int8LSTM(ProjectedLSTM(LSTMConfig(cell_dim=16, output_dim=8)))
    inputs, mask = torch.randn(num_rows, 3, 8), torch.ones(num_rows, 3, dtype=torch.bool)
    inputs[3, 1, 2] = torch.nan
    state = LSTMState(torch.zeros(num_rows, 8), torch.zeros(num_rows, 16))
    found, _ = layer(inputs, mask, state)
    assert found.isnan().all(dim=2).nonzero().tolist() == [[3, 1], [3, 2]]


@works
@pytest.mark.parametrize("by_column", [True, False])
def test_an_infinity_is_no_number_in_any_layout(by_column):
    rows = torch.randn(3, 8)
    rows[1, 2] = torch.inf
    out = torch.empty(16, 3)
    int8.Int8Product(torch.randn(16, 8))(rows.T.contiguous() if by_column else rows.T, out)
    assert out.isnan().all(dim=0).tolist() == [False, True, False]


@works
def test_what_does_not_fit_is_refused():
    layer = int8.Int8LSTM(ProjectedLSTM(LSTMConfig(cell_dim=8, output_dim=4)))
    mask, state = (
        torch.ones(12, 3, dtype=torch.bool),
        LSTMState(torch.zeros(11, 4), torch.zeros(11, 8)),
    )
    with pytest.raises(ValueError, match="as many rows"):
        layer(torch.randn(12, 3, 4), mask, state)


@works
def test_another_default_precision_changes_nothing():
    layer = int8.Int8LSTM(ProjectedLSTM(LSTMConfig(cell_dim=64, output_dim=32)))
    inputs, mask = torch.randn(96, 4, 32), torch.ones(96, 4, dtype=torch.bool)
    state = LSTMState(torch.zeros(96, 32), torch.zeros(96, 64))
    expected, _ = layer(inputs, mask, state)
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = [layer(inputs, mask, state)[0] for _ in range(20)]
    finally:
        torch.set_default_dtype(torch.float)
    assert all(torch.equal(each, expected) for each in found)


@works
def test_a_weight_that_is_no_number_is_not_lost():
    weight = torch.randn(9, 5)
    weight[3, 2] = torch.nan
    out = torch.empty(9, 13)
    int8.Int8Product(weight)(torch.randn(5, 13), out)
    assert out[3].isnan().all()
    assert out[[0, 1, 2, *range(4, 9)]].isfinite().all()


@works
def test_a_module_with_bytes_is_near_and_leaves_the_other_as_it_was():
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.ReLU(), torch.nn.Linear(20, 9))
    plain.requires_grad_(False)
    rows = torch.randn(50, 30)
    expected = plain(rows)
    found = int8.with_int8(plain)(rows)
    assert (found - expected).norm() < 0.02 * expected.norm()
    assert (found != expected).any()
    assert torch.equal(plain(rows), expected)


def test_it_is_for_a_cpu_alone():
    assert not int8.works(torch.device("meta"))


def test_a_cpu_without_such_instructions_is_told(monkeypatch):
    monkeypatch.setattr(int8, "wide_with_dots", tuple)  # no flags: none of what C may use
    assert not int8.works(CPU)


def test_without_a_compiler_it_does_not_work(monkeypatch):
    monkeypatch.setattr(int8.compiled, "library", lambda *_: None)
    assert not int8.works(CPU)


@works
@pytest.mark.parametrize("rows", [2, 12])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half, torch.double], ids=str)
def test_a_layer_reads_inputs_of_another_precision_in_float32(rows, dtype):
    exact = ProjectedLSTM(LSTMConfig(cell_dim=16, output_dim=8)).requires_grad_(False)
    inputs, mask = torch.randn(rows, 3, 8).to(dtype), torch.rand(rows, 3) < 0.8
    state, to = (
        LSTMState(torch.randn(rows, 8).to(dtype), torch.randn(rows, 16).to(dtype)) for _ in range(2)
    )
    starts = torch.rand(rows, 3) < 0.3
    layer = int8.Int8LSTM(exact)
    expected, end = layer(inputs.float(), mask, state.float(), StateReset(starts, to.float()))
    converted = int8.Int8LSTM(exact).to(dtype)
    for each in (layer, converted):
        found, found_end = each(inputs, mask, state, StateReset(starts, to))
        assert torch.equal(found, expected)
        assert torch.equal(found_end.cell, end.cell)
        assert torch.equal(each.project_inputs(inputs), layer.project_inputs(inputs.float()))


@works
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half, torch.double], ids=str)
def test_weights_of_another_precision_are_rounded_to_bytes_too(dtype):
    exact = ProjectedLSTM(LSTMConfig(cell_dim=16, output_dim=8)).requires_grad_(False).to(dtype)
    torch.nn.init.normal_(exact.bias)
    inputs, mask = torch.randn(2, 3, 8), torch.ones(2, 3, dtype=torch.bool)
    state = LSTMState(torch.zeros(2, 8), torch.zeros(2, 16))
    found, _ = int8.Int8LSTM(exact)(inputs, mask, state)
    expected, _ = exact.float()(inputs, mask, state)
    assert (found - expected).norm() < 0.03 * expected.norm()
    linear = torch.nn.Linear(8, 5).requires_grad_(False).to(dtype)
    rows = torch.randn(4, 8).to(dtype)
    found = int8.with_int8(torch.nn.Sequential(linear))(rows)
    assert found.dtype == torch.float
    expected = linear.float()(rows.float())
    assert (found - expected).norm() < 0.03 * expected.norm()


@works
@pytest.mark.parametrize("place", range(4))
def test_what_is_on_another_device_is_refused_in_a_sentence(place):
    layer = int8.Int8LSTM(ProjectedLSTM(LSTMConfig(cell_dim=8, output_dim=8)))
    given = [
        torch.randn(12, 3, 8),
        torch.ones(12, 3, dtype=torch.bool),
        torch.zeros(12, 8),
        torch.zeros(12, 8),
    ]
    given[place] = given[place].to("meta")
    inputs, mask, *state = given
    with pytest.raises(ConfigError, match="read on the CPU, found inputs on device 'meta'"):
        layer(inputs, mask, LSTMState(*state))
    with pytest.raises(ConfigError, match="read on the CPU, found inputs on device 'meta'"):
        layer.project_inputs(torch.empty(1, 2, 8, device="meta"))


@works
def test_a_product_refuses_what_its_c_would_read_as_something_else():
    product = int8.Int8Product(torch.randn(6, 4))
    for columns, out in (
        (torch.randn(4, 3).half(), torch.empty(6, 3)),
        (torch.randn(4, 3), torch.empty(6, 3, dtype=torch.double)),
        (torch.randn(5, 3), torch.empty(6, 3)),
        (torch.randn(4, 3), torch.empty(5, 3)),
        (torch.empty(4, 3, device="meta"), torch.empty(6, 3)),
    ):
        with pytest.raises(ValueError, match="expected float32 on the CPU, and sizes that fit"):
            product(columns, out)
