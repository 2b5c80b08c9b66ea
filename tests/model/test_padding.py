"""A padding mask of numbers is the same mask for every layer, and none is read as anything else."""

import re

import jaxtyping
import pytest
import torch
from torch.testing import assert_close

from elmore.errors import DataError
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, LSTMConfig, WordsConfig
from elmore.model.lstm.backends import BACKENDS
from elmore.model.lstm.call import LSTMState, StateReset
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.mix import ScalarMix
from elmore.model.padding import as_bool
from elmore.model.unique_words import index_unique_words
from tests.support import simulated_bf16

CONFIG = LSTMConfig(num_layers=1, cell_dim=16, output_dim=8)
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # no bfloat16 in this CPU


def layer_of(backend: str, monkeypatch: pytest.MonkeyPatch) -> ProjectedLSTM:
    """Build a layer that runs by one backend; bf16 is simulated."""
    torch.manual_seed(0)
    layer = ProjectedLSTM(CONFIG).requires_grad_(False)
    if backend == "eager_bf16":
        simulated_bf16.simulate_bf16_units(monkeypatch)
    elif not BACKENDS[backend].available(torch.device("cpu")):
        pytest.skip(f"this machine has no {backend}")
    layer.backend, layer.precision = backend, "fast"
    return layer


def mask_of(rows: int) -> torch.Tensor:
    return torch.arange(4) < torch.tensor([[4], [1], [3]] * (rows // 3))


@pytest.mark.parametrize("rows", [3, 12])
@pytest.mark.parametrize("dtype", [torch.long, torch.uint8, torch.float], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_of_ones_and_zeros_is_the_mask_in_every_layer(backend, dtype, rows, monkeypatch):
    layer, inputs = layer_of(backend, monkeypatch), torch.randn(rows, 4, 8)
    state = LSTMState(torch.randn(rows, 8), torch.randn(rows, 16))
    mask, starts = mask_of(rows), torch.rand(rows, 4) < 0.3
    outputs, end = layer(inputs, mask, state, StateReset(starts, state))
    result, found_end = layer(inputs, mask.to(dtype), state, StateReset(starts.to(dtype), state))
    assert torch.equal(result, outputs)
    assert_close(found_end, end, rtol=0, atol=0)
    assert not result[~mask].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_numbers_than_0_and_1_are_refused_as_a_mask(backend, monkeypatch):
    layer, inputs = layer_of(backend, monkeypatch), torch.randn(3, 4, 8)
    state = LSTMState(torch.zeros(3, 8), torch.zeros(3, 16))
    added = torch.where(mask_of(3), 0.0, -torch.inf)  # as attention has it
    with pytest.raises(DataError, match="bool, or 1 where a token is and 0 where none is; found"):
        layer(inputs, added, state)


@pytest.fixture
def _no_type_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the checks of annotated shapes, which only tests have."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.usefixtures("_no_type_checks")
@pytest.mark.parametrize("shape", [(3, 5), (3, 3), (1, 4), (3, 1), (4,), (3, 4, 1)], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_of_another_shape_is_refused_by_every_layer(backend, shape, monkeypatch):
    layer, inputs = layer_of(backend, monkeypatch), torch.randn(3, 4, 8)
    state = LSTMState(torch.zeros(3, 8), torch.zeros(3, 16))
    wrong = torch.ones(shape, dtype=torch.bool)
    expected = rf"must have the shape \(3, 4\).* found {re.escape(str(shape))}"
    with pytest.raises(DataError, match=f"a padding mask {expected}"):
        layer(inputs, wrong, state)
    with pytest.raises(DataError, match=f"a reset mask {expected}"):
        layer(inputs, mask_of(3), state, StateReset(wrong, state))


@pytest.mark.usefixtures("_no_type_checks")
def test_a_network_refuses_a_mask_of_another_shape():
    model = BiLM(BiLMConfig(characters=None, words=WordsConfig(num_words=3, dim=8), lstm=CONFIG))
    for shape in [(3, 5), (1, 4), (3, 1)]:
        with pytest.raises(DataError, match=r"a padding mask must have the shape \(3, 4\)"):
            model.contextualize(torch.randn(3, 4, 8), torch.ones(shape, dtype=torch.bool))


def test_a_network_reads_a_mask_of_numbers_and_gives_one_of_booleans():
    torch.manual_seed(0)
    model = BiLM(BiLMConfig(characters=None, words=WordsConfig(num_words=3, dim=8), lstm=CONFIG))
    model.eval().requires_grad_(False)
    mask = mask_of(3)
    vectors = torch.randn(3, 4, 8) * mask[:, :, None]
    expected, _ = model.contextualize(vectors, mask)
    result, _ = model.contextualize(vectors, mask.long())
    assert torch.equal(result.states, expected.states)
    assert torch.equal(result.mask, mask)


def test_a_mix_and_an_index_take_a_mask_of_numbers():
    mask, layers = mask_of(3), torch.randn(2, 3, 4, 8)
    mix = ScalarMix(2, layer_norm="allennlp")
    assert torch.equal(mix(layers, mask.long()), mix(layers, mask))
    ids, marks = torch.arange(24).reshape(3, 4, 2), torch.tensor([[90, 0], [91, 0]])
    for result, expected in zip(
        index_unique_words(ids, mask.long(), marks),
        index_unique_words(ids, mask, marks),
        strict=True,
    ):
        assert torch.equal(result, expected)


def test_a_mask_of_booleans_is_given_back_as_it_is():
    mask = mask_of(3)
    assert as_bool(mask) is mask
