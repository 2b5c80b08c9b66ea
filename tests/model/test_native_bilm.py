"""The network without torch: the layers of the definition, from the same weights."""

import numpy as np
import pytest
import torch

from elmore.model import native
from elmore.model.bilm import BiLM
from elmore.model.bilm_arrays import BiLMArrays, SoftmaxArrays
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig, SoftmaxConfig, WordsConfig
from elmore.model.softmax import build
from elmore.model.weight_shapes import bilm_shapes, lstm_matrices, softmax_shapes
from elmore.weights.modules import meta_model

pytestmark = pytest.mark.skipif(not native.available(), reason="there is no native library here")

CHARACTERS = CharCNNConfig(filters=((1, 5), (2, 6), (4, 9)), embedding_dim=4, num_highways=2)
LSTM = LSTMConfig(num_layers=3, cell_dim=24, output_dim=12)
PLAIN = LSTMConfig(
    num_layers=2, cell_dim=12, output_dim=12, projection=False, skip_connections=False
)
UNCLIPPED = LSTMConfig(
    cell_dim=24, output_dim=12, cell_clip=None, output_clip=None, forget_bias=0.0
)
TANH = CharCNNConfig(filters=((3, 12),), activation="tanh", num_highways=0, max_characters=9)
CONFIGS = {
    "characters": BiLMConfig(characters=CHARACTERS, lstm=LSTM),
    "no projections": BiLMConfig(characters=TANH, projection=False, lstm=PLAIN),
    "words": BiLMConfig(characters=None, words=WordsConfig(num_words=9, dim=7), lstm=UNCLIPPED),
    "both": BiLMConfig(characters=CHARACTERS, words=WordsConfig(num_words=9, dim=7), lstm=LSTM),
}


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS)
def model(request) -> BiLM:
    return BiLM(request.param).eval()


def as_arrays(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: weight.detach().numpy() for name, weight in model.state_dict().items()}


def make_ids(config: BiLMConfig) -> list[np.ndarray | None]:
    rng = np.random.default_rng(0)
    index = np.array([[0, 3, 4, 1, -1, -1], [0, 5, 2, 4, 3, 1], [0, 1, -1, -1, -1, -1]])
    characters = rng.integers(0, 250, (6, 8)) if config.characters else None
    return [index, characters, rng.integers(0, 9, 6) if config.words else None]


def test_layers_and_states_are_those_of_the_definition(model):
    ids = make_ids(model.config)
    tensors = [None if part is None else torch.from_numpy(part) for part in ids]
    network = BiLMArrays(model.config, as_arrays(model)).pack()
    state = expected_state = None
    for _ in range(2):  # the second time from the state of the first
        stack, state = network.run(*ids, state=state)
        expected, expected_state = model(*tensors, state=expected_state)  # with gradients: torch
        assert np.array_equal(stack.mask, expected.mask)
        np.testing.assert_allclose(stack.states, expected.states.detach(), rtol=0, atol=1e-5)
        for found, wanted in zip(state, expected_state, strict=True):
            np.testing.assert_allclose(found, wanted.detach(), rtol=0, atol=1e-5)


def test_int8_matrices_give_the_layers_of_their_floats(model):
    arrays = as_arrays(model)
    rows = {name: native.quantize_rows(arrays[name]) for name in lstm_matrices(model.config)}
    dense = {name: matrix.dense() for name, matrix in rows.items()}
    ids = make_ids(model.config)
    found, _ = BiLMArrays(model.config, arrays | rows).pack().run(*ids)
    expected, _ = BiLMArrays(model.config, arrays | dense).pack().run(*ids)
    np.testing.assert_allclose(found.states, expected.states, rtol=0, atol=1e-5)


def test_a_truncated_network_gives_the_lower_layers(model):
    arrays, ids = BiLMArrays(model.config, as_arrays(model)), make_ids(model.config)
    whole, _ = arrays.pack().run(*ids)
    lower, _ = arrays.truncate(1).pack().run(*ids)
    assert np.array_equal(lower.states, whole.states[:2])


def test_a_truncated_network_has_the_weights_of_a_truncated_module(model):
    arrays = BiLMArrays(model.config, as_arrays(model)).truncate(1)
    model.truncate(1)
    assert [name for name, _ in arrays.named_weights()] == sorted(model.state_dict())
    assert arrays.num_parameters == model.num_parameters


def test_a_character_that_does_not_exist_is_refused():
    model = BiLM(CONFIGS["characters"])
    network = BiLMArrays(model.config, as_arrays(model)).pack()
    for wrong in (261, -1):
        with pytest.raises(IndexError, match="must be below 261"):
            network.tokens(np.array([[1, wrong]]), None)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_shapes_of_a_network_are_those_of_its_modules(config):
    model = meta_model(config)
    found = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert bilm_shapes(config) == found
    lstm = {name for name in found if "_layers." in name and not name.endswith("bias")}
    assert lstm_matrices(config) == lstm


SOFTMAXES = [
    SoftmaxConfig(kind="full"),
    SoftmaxConfig(kind="adaptive"),
    SoftmaxConfig(kind="adaptive", cutoffs=(3, 8, 30)),
    SoftmaxConfig(kind="adaptive", cutoffs=(3, 8), tail_widths=(12, 8)),
]


@pytest.mark.parametrize("config", SOFTMAXES)
def test_a_softmax_gives_the_probabilities_of_the_definition(config):
    module = build(config, 61, 12)
    arrays = as_arrays(module)
    assert softmax_shapes(config, 61, 12) == {name: each.shape for name, each in arrays.items()}
    softmax = SoftmaxArrays(config, 61, arrays).pack()
    states, targets = torch.randn(40, 12), torch.randint(0, 61, (40,))
    with torch.no_grad():
        nll, log_probs = module.nll(states, targets), module.log_probs(states)
    for found in (softmax, module.pack()):
        np.testing.assert_allclose(
            found.nll(states.numpy(), targets.numpy()), nll, rtol=0, atol=1e-5
        )
        np.testing.assert_allclose(found.log_probs(states.numpy()), log_probs, rtol=0, atol=1e-5)


@pytest.mark.skipif(not native.has_int8_dot(), reason="this CPU has no int8 dot products")
@pytest.mark.parametrize("config", SOFTMAXES)
def test_a_softmax_of_int8_products_is_near_the_definition_and_the_same_for_arrays(config):
    module = build(config, 61, 64)
    states, targets = torch.randn(40, 64).numpy(), np.arange(40)
    exact, fast = module.pack(), module.pack(dynamic=True)
    of_arrays = SoftmaxArrays(config, 61, as_arrays(module)).pack(dynamic=True)
    near = {"rtol": 0, "atol": 0.1}
    np.testing.assert_allclose(fast.log_probs(states), exact.log_probs(states), **near)
    assert not np.array_equal(fast.log_probs(states), exact.log_probs(states))
    np.testing.assert_allclose(fast.nll(states, targets), exact.nll(states, targets), **near)
    assert np.array_equal(fast.log_probs(states), of_arrays.log_probs(states))
    assert np.array_equal(module.pack().log_probs(states), exact.log_probs(states))


@pytest.mark.parametrize("config", [SoftmaxConfig(kind="sampled", num_samples=9), *SOFTMAXES])
def test_a_packed_softmax_follows_updates_that_torch_does_not_count(config):
    module = build(config, 61, 12)
    states, targets = torch.randn(40, 12), torch.randint(0, 61, (40,))
    module.pack()
    module.loss(states, targets, seed=0).sum().backward()
    torch.optim.AdamW(module.parameters(), lr=0.1, fused=True).step()
    with torch.no_grad():
        nll = module.nll(states, targets)
    found = module.pack().nll(states.numpy(), targets.numpy())
    np.testing.assert_allclose(found, nll, rtol=0, atol=1e-5)
