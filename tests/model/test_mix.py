import numpy as np
import pytest
import torch
from torch.testing import assert_close

from elmore.model.mix import ScalarMix
from tests.support import numpy_elmo


def layers(num_layers: int = 3) -> torch.Tensor:
    return torch.randn(num_layers, 2, 5, 4)


def mask() -> torch.Tensor:
    return torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


def test_untrained_mix_is_the_average():
    stack = layers()
    assert_close(ScalarMix(3)(stack), stack.mean(dim=0))


def test_a_dominant_weight_selects_its_layer():
    stack, mix = layers(), ScalarMix(3)
    with torch.no_grad():
        mix.weights[1] = 100.0
    assert_close(mix(stack), stack[1])


def test_the_mix_is_the_equation_of_the_paper():
    stack, weights = layers(), [0.3, -1.0, 2.0]
    expected = numpy_elmo.scalar_mix(stack.numpy(), np.array(weights), 0.7)
    result = ScalarMix(3, weights=weights, gamma=0.7)(stack)
    assert_close(result, torch.from_numpy(expected), check_dtype=False)


def test_wrong_number_of_layers_is_named():
    with pytest.raises(ValueError, match="built for 3 layers and was given 2"):
        ScalarMix(3)(layers(2))


def test_wrong_number_of_weights_is_named():
    with pytest.raises(ValueError, match="has 3 weights and was given 2"):
        ScalarMix(3, weights=[1.0, 2.0])
    with pytest.raises(ValueError, match="has 0 weights and was given 1"):
        ScalarMix(3, weights=[1.0], last_only=True)


def test_last_only_scales_the_top_layer_and_learns_nothing_else():
    stack, mix = layers(), ScalarMix(3, last_only=True, gamma=2.0)
    assert_close(mix(stack), 2 * stack[-1])
    assert mix.weights.numel() == 0
    assert mix.penalty(1.0) == 0


def test_the_penalty_is_the_sum_of_squares_of_the_weights_alone():
    mix = ScalarMix(3, weights=[1.0, -2.0, 0.5], gamma=9.0)
    assert_close(mix.penalty(0.1), torch.tensor(0.1 * 5.25))
    mix.penalty(0.1).backward()
    assert_close(mix.weights.grad, 0.2 * mix.weights.detach())
    assert mix.gamma.grad is None


def test_a_mix_that_is_not_trainable_has_no_gradient():
    assert not any(weight.requires_grad for weight in ScalarMix(3, trainable=False).parameters())
    assert all(weight.requires_grad for weight in ScalarMix(3).parameters())


@pytest.mark.parametrize(
    ("kind", "reference"),
    [("allennlp", numpy_elmo.layer_norm_allennlp), ("bilm-tf", numpy_elmo.layer_norm_bilm)],
)
def test_the_batch_norms_are_those_of_the_releases(kind, reference):
    stack = layers() * torch.tensor([1.0, 5.0, 0.1])[:, None, None, None] + 3
    expected = reference(stack.numpy(), mask().numpy()).mean(axis=0)
    result = ScalarMix(3, layer_norm=kind)(stack, mask())
    assert_close(result, torch.from_numpy(expected), check_dtype=False, rtol=1e-5, atol=1e-5)


def test_the_token_norm_evens_each_vector_on_its_own():
    stack = layers() * 7 + 3
    expected = numpy_elmo.layer_norm_token(stack.double().numpy(), epsilon=1e-5).mean(axis=0)
    mix = ScalarMix(3, layer_norm="token")
    assert_close(mix(stack), torch.from_numpy(expected).float(), rtol=1e-5, atol=1e-5)
    assert_close(mix(stack[:, :1, :2]), mix(stack)[:1, :2])


def test_a_batch_norm_without_a_mask_is_refused():
    with pytest.raises(ValueError, match="needs the mask"):
        ScalarMix(3, layer_norm="allennlp")(layers())


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="must be False or one of 'token', 'allennlp', 'bilm-tf'"):
        ScalarMix(3, layer_norm=True)


@pytest.mark.parametrize("kind", [False, "token", "allennlp", "bilm-tf"])
def test_gradients_are_those_of_finite_differences(kind):
    mix = ScalarMix(3, weights=[0.1, 0.2, 0.3], layer_norm=kind).double()
    stack = layers().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mix(x, mask()), stack)
