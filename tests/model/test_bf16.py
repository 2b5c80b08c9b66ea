import pytest
import torch
from torch.testing import assert_close

from elmore.errors import ConfigError
from elmore.model import bf16
from elmore.model.config import LSTMConfig
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.lstm.reference import LSTMState, StateReset
from tests.support.simulated_bf16 import give_units

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]
everywhere = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
ROUNDING = 2**-8  # of bf16, relative


@everywhere
@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize("clip", [0.5, None])
@pytest.mark.parametrize("resets", [True, False])
def test_a_fast_layer_is_the_exact_one_but_for_rounding(
    monkeypatch, device, projection, clip, resets
):
    give_units(monkeypatch)
    width = 24 if projection else 40
    config = LSTMConfig(
        cell_dim=40, output_dim=width, projection=projection, cell_clip=clip, output_clip=clip
    )
    exact = ProjectedLSTM(config).to(device).requires_grad_(False)
    torch.nn.init.normal_(exact.bias)
    inputs = torch.randn(6, 9, width).to(device)
    mask = (torch.arange(9) < torch.tensor([[9], [0], [1], [5], [9], [8]])).to(device)
    state, to = (
        LSTMState(torch.randn(6, width).to(device), torch.randn(6, 40).to(device)) for _ in range(2)
    )
    anew = StateReset((torch.rand(6, 9) < 0.3).to(device), to) if resets else None
    expected, end = exact(inputs, mask, state, anew)
    found, found_end = bf16.BF16LSTM(exact)(inputs, mask, state, anew)
    assert found.dtype == found_end.cell.dtype == found_end.output.dtype == torch.float32
    close = {"rtol": 2 * ROUNDING, "atol": 4 * ROUNDING}
    assert_close(found, expected, **close)
    assert_close(found_end.cell, end.cell, **close)
    assert_close(found_end.output, end.output, **close)
    assert not found[~mask].any()
    assert (found != expected).any()


@everywhere
def test_autocast_around_it_changes_nothing(monkeypatch, device):
    give_units(monkeypatch)
    layer = bf16.BF16LSTM(ProjectedLSTM(LSTMConfig(cell_dim=8, output_dim=4)).to(device))
    inputs, mask = torch.randn(2, 3, 4).to(device), torch.ones(2, 3, dtype=torch.bool).to(device)
    state = LSTMState(torch.zeros(2, 4).to(device), torch.zeros(2, 8).to(device))
    expected, _ = layer(inputs, mask, state)
    with torch.autocast(device, torch.bfloat16):
        found, _ = layer(inputs, mask, state)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half, torch.double], ids=str)
def test_inputs_of_another_precision_are_read_in_float32(monkeypatch, dtype):
    give_units(monkeypatch)
    layer = bf16.BF16LSTM(ProjectedLSTM(LSTMConfig(cell_dim=8, output_dim=4))).to(dtype)
    inputs, mask = torch.randn(2, 3, 4).to(dtype), torch.rand(2, 3) < 0.8
    state = LSTMState(torch.randn(2, 4).to(dtype), torch.randn(2, 8).to(dtype))
    expected, end = layer(inputs.float(), mask, state.float())
    found, found_end = layer(inputs, mask, state)
    assert torch.equal(found, expected)
    assert torch.equal(found_end.cell, end.cell)


def test_inputs_on_another_device_are_refused_in_a_sentence(monkeypatch):
    give_units(monkeypatch)
    product = bf16.BF16Linear(torch.randn(3, 4))
    with pytest.raises(ConfigError, match="precision='fast' on cpu and read on meta; move"):
        product(torch.empty(2, 4, device="meta"))


@everywhere
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # no bfloat16 in this CPU
def test_a_product_of_numbers_that_bf16_holds_is_exact(device):
    weight = torch.tensor([[1.0, 2.0], [0.5, -3.0], [0.0, 1.25]], device=device)
    rows = torch.tensor([[1.0, 0.5], [-2.0, 4.0]], device=device)
    found = bf16.BF16Linear(weight)(rows)
    assert found.dtype == torch.float32
    assert found.tolist() == [[2.0, -1.0, 0.625], [6.0, -13.0, 5.0]]


def test_a_factor_of_a_product_is_rounded_to_bf16(monkeypatch):
    give_units(monkeypatch)
    near_one = torch.tensor([[1 + 2.0**-10]])  # bf16 knows steps of 2^-7 there
    assert bf16.BF16Linear(near_one)(torch.ones(1, 1)).item() == 1
    assert bf16.BF16Linear(torch.ones(1, 1))(near_one).item() == 1


def test_the_private_way_to_packed_weights_is_what_it_was():
    """Where torch changes it, fast goes on unpacked and slower: better to know."""
    pack, multiply = torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._linear_pointwise
    assert str(pack.default._schema) == (
        "mkldnn::_reorder_linear_weight(Tensor self, int? batch_size=None) -> Tensor Y"
    )
    assert str(multiply.default._schema) == (
        "mkldnn::_linear_pointwise(Tensor X, Tensor W, Tensor? B, str attr, Scalar?[] scalars, "
        "str? algorithm) -> Tensor Y"
    )
    weight, rows = torch.randn(24, 16), torch.randn(5, 16)
    found = bf16.packed(weight)  # any CPU packs float32
    assert found is not None
    assert found.layout == torch._mkldnn
    assert_close(bf16.multiply_packed(rows, found), rows @ weight.T)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # no bfloat16 in this CPU
@pytest.mark.parametrize("error", [AttributeError, RuntimeError, TypeError])
def test_without_the_private_way_products_are_plain(monkeypatch, error):
    def gone(*arguments):
        raise error

    monkeypatch.setattr(bf16, "multiply_packed", gone)
    assert bf16.packed(torch.ones(2, 2)) is None
    assert bf16.BF16Linear(torch.ones(2, 3))(torch.ones(1, 3)).tolist() == [[3.0, 3.0]]
