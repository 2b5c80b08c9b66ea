import platform

import pytest
import torch

from elmore.model import int8, precision
from elmore.model.bf16 import BF16LSTM
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, LSTMConfig, WordsConfig

CPU = torch.device("cpu")


@pytest.fixture
def answers(monkeypatch) -> dict[str, bool]:
    """What torch says of a CPU from elsewhere; nothing unless a test says it."""
    found: dict[str, bool] = {}
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    for name in names:
        monkeypatch.setattr(torch.cpu, name, lambda name=name: found[name], raising=False)
        found[name] = False
    monkeypatch.setattr(
        torch.ops.mkldnn,
        "_is_mkldnn_bf16_supported",
        lambda: found["_is_mkldnn_bf16_supported"],
        raising=False,
    )
    found["_is_mkldnn_bf16_supported"] = False
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return found


@pytest.mark.parametrize("name", ["_is_amx_tile_supported", "_is_avx512_bf16_supported"])
def test_an_intel_or_amd_cpu_has_units_if_it_has_amx_or_bf16(answers, name):
    assert not precision.has_native_bf16(CPU)
    answers[name] = True
    assert precision.has_native_bf16(CPU)


def test_bf16_that_onednn_emulates_is_not_a_unit(answers):
    answers["_is_mkldnn_bf16_supported"] = True
    assert not precision.has_native_bf16(CPU)


def test_an_arm_cpu_has_units_if_onednn_uses_them(answers, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not precision.has_native_bf16(CPU)
    answers["_is_mkldnn_bf16_supported"] = True
    assert precision.has_native_bf16(CPU)


def test_units_nobody_uses_do_not_count(answers, monkeypatch):
    answers["_is_amx_tile_supported"] = True
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not precision.has_native_bf16(CPU)


def test_a_question_torch_no_longer_answers_is_a_no(answers):
    answers.clear()

    def gone() -> bool:
        raise AttributeError

    torch.cpu._is_amx_tile_supported = gone  # the fixture puts it back
    torch.cpu._is_avx512_bf16_supported = gone
    assert not precision.has_native_bf16(CPU)


@pytest.mark.parametrize("kind", ["mps", "meta"])
def test_other_devices_have_none_that_were_tried(kind):
    assert not precision.has_native_bf16(torch.device(kind))


@pytest.mark.parametrize("bytes_work", [True, False])
def test_a_cpu_that_has_both_multiplies_bytes(monkeypatch, bytes_work):
    if not int8.works(CPU):
        pytest.skip("this CPU has no dot products of bytes, or no compiler")
    monkeypatch.setattr(precision, "has_native_bf16", lambda device: True)
    monkeypatch.setattr(int8, "works", lambda device: bytes_work)
    lstm = LSTMConfig(num_layers=1, cell_dim=8, output_dim=8)
    model = BiLM(BiLMConfig(characters=None, words=WordsConfig(num_words=3, dim=8), lstm=lstm))
    chosen = precision.with_precision(model, "fast").forward_layers[0]
    assert isinstance(chosen, int8.Int8LSTM if bytes_work else BF16LSTM)
