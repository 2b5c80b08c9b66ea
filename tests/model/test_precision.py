import logging

import pytest
import torch

from elmore.model import native, packed_weights, precision
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, LSTMConfig, WordsConfig
from elmore.model.lstm import eager
from elmore.model.lstm.backends import Need, select_backend


def network() -> BiLM:
    lstm = LSTMConfig(num_layers=1, cell_dim=8, output_dim=8)
    words = WordsConfig(num_words=3, dim=8)
    return BiLM(BiLMConfig(characters=None, words=words, lstm=lstm)).eval()


def layers(model: BiLM) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([[0, 1, 2, 1]]), words=torch.arange(3))[0].states


@pytest.mark.parametrize("has_dot", [True, False])
def test_a_cpu_with_int8_and_bf16_units_multiplies_in_int8(monkeypatch, has_dot):
    monkeypatch.setattr(eager, "has_native_bf16", lambda device: True)
    monkeypatch.setattr(native, "has_int8_dot", lambda: has_dot)
    layer = precision.with_precision(network(), "fast").forward_layers[0]
    with torch.no_grad():
        need = Need.from_tensors(layer.weights.tensors, layer.precision)
    assert select_backend(need).name == ("native_int8" if has_dot else "eager_bf16")


def test_a_fast_network_has_the_weights_of_the_model_and_follows_it():
    model = network().requires_grad_(False)
    fast = precision.with_precision(model, "fast")
    if not fast.is_fast:
        pytest.skip("this CPU has neither int8 nor bf16 units")
    assert precision.with_precision(model, "exact") is model
    before, exact = layers(fast), layers(model)
    assert (before != exact).any()
    assert (before - exact).abs().max() < 0.02
    model.forward_layers[0].recurrent.mul_(1.5)
    changed, exact = layers(fast), layers(model)
    assert (changed != before).any()
    assert (changed - exact).abs().max() < 0.02
    model.double()
    assert not fast.is_fast
    assert torch.equal(layers(fast), layers(model))


def test_weights_of_another_type_are_exact_and_that_is_said(caplog):
    with caplog.at_level(logging.WARNING):
        assert not precision.with_precision(network().double(), "fast").is_fast
    assert caplog.messages == [
        "precision 'fast' is exact here: it is for float32 weights, and these are torch.float64"
    ]


def test_a_version_changes_with_the_weights():
    model = network().requires_grad_(False)
    before = packed_weights.weights_version(model)
    assert packed_weights.weights_version(model) == before
    model.backward_layers[0].bias.add_(1)
    after = packed_weights.weights_version(model)
    assert after != before
    model.double()
    assert packed_weights.weights_version(model) != after
