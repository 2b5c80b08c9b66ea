import platform

import pytest
import torch
from torch.testing import assert_close

from elmore.model.lstm import eager
from tests.support import simulated_bf16

CPU = torch.device("cpu")


@pytest.fixture
def answers(monkeypatch) -> dict[str, bool]:
    """What torch says of a CPU from elsewhere; nothing unless a test says it."""
    result: dict[str, bool] = {}
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    for name in names:
        monkeypatch.setattr(torch.cpu, name, lambda name=name: result[name], raising=False)
        result[name] = False
    monkeypatch.setattr(
        torch.ops.mkldnn,
        "_is_mkldnn_bf16_supported",
        lambda: result["_is_mkldnn_bf16_supported"],
        raising=False,
    )
    result["_is_mkldnn_bf16_supported"] = False
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return result


@pytest.mark.parametrize("name", ["_is_amx_tile_supported", "_is_avx512_bf16_supported"])
def test_an_intel_or_amd_cpu_has_units_if_it_has_amx_or_bf16(answers, name):
    assert not eager.has_native_bf16(CPU)
    answers[name] = True
    assert eager.has_native_bf16(CPU)


def test_bf16_that_onednn_emulates_is_not_a_unit(answers):
    answers["_is_mkldnn_bf16_supported"] = True
    assert not eager.has_native_bf16(CPU)


def test_an_arm_cpu_has_units_if_onednn_uses_them(answers, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not eager.has_native_bf16(CPU)
    answers["_is_mkldnn_bf16_supported"] = True
    assert eager.has_native_bf16(CPU)


def test_units_nobody_uses_do_not_count(answers, monkeypatch):
    answers["_is_amx_tile_supported"] = True
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not eager.has_native_bf16(CPU)


def test_a_private_function_missing_from_torch_counts_as_false(answers):
    answers.clear()

    def gone() -> bool:
        raise AttributeError

    torch.cpu._is_amx_tile_supported = gone  # the fixture puts it back
    torch.cpu._is_avx512_bf16_supported = gone
    assert not eager.has_native_bf16(CPU)


@pytest.mark.parametrize("kind", ["mps", "meta"])
def test_other_devices_have_none_that_were_tried(kind):
    assert not eager.has_native_bf16(torch.device(kind))


GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # no bfloat16 in this CPU
def test_a_product_of_numbers_that_bf16_holds_is_exact(device):
    weight, rows = (torch.randint(-8, 9, shape).float().to(device) for shape in ((5, 8), (3, 8)))
    result = eager.BF16Linear(weight)(rows)
    assert result.dtype == torch.float
    assert torch.equal(result, rows @ weight.T)


def test_a_factor_of_a_product_is_rounded_to_bf16(monkeypatch):
    simulated_bf16.simulate_bf16_units(monkeypatch)
    near_one = torch.tensor([[1 + 2.0**-10]])  # bf16 has steps of 2^-7 there
    assert eager.BF16Linear(near_one)(torch.ones(1, 1)).item() == 1
    assert eager.BF16Linear(torch.ones(1, 1))(near_one).item() == 1


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is without oneDNN")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="packed as on x86")
def test_the_private_functions_of_torch_that_pack_are_still_there():
    """Without them "fast" goes on unpacked and slower: better to know."""
    weight, rows = torch.randn(24, 16), torch.randn(3, 16)
    packed = eager.pack_bf16(weight)  # any CPU packs float32
    assert packed is not None
    assert_close(eager.multiply_packed_bf16(rows, packed), rows @ weight.T)


def test_without_them_nothing_is_packed(monkeypatch):
    def missing(*_):
        raise AttributeError

    monkeypatch.setattr(eager, "multiply_packed_bf16", missing)
    assert eager.pack_bf16(torch.ones(2, 2)) is None
    simulated_bf16.simulate_bf16_units(monkeypatch)
    assert eager.BF16Linear(torch.ones(2, 3))(torch.ones(1, 3)).tolist() == [[3.0, 3.0]]
