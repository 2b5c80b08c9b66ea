"""The optimisers by their published updates."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from elmore.errors import ConfigError
from elmore.lm import config as recipes
from elmore.train import optim
from elmore.train.config import TrainConfig


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64))
        self.vector = nn.Parameter(torch.tensor([0.1, -0.2], dtype=torch.float64))


def update(module: nn.Module, optimizer, gradients: list[np.ndarray], config: TrainConfig) -> None:
    for weight, gradient in zip(module.parameters(), gradients, strict=True):
        weight.grad = torch.from_numpy(gradient.copy())
    nn.utils.clip_grad_norm_(module.parameters(), config.clip or float("inf"))
    optimizer.step()


def test_the_original_recipe_makes_the_updates_of_the_paper():
    """Gradients of 20 times the loss, clipped at 10 together, Adagrad from an accumulator of 1."""
    config = recipes.pretraining("original").train
    module, rng = Weights(), np.random.default_rng(0)
    weights = [weight.detach().numpy().copy() for weight in module.parameters()]
    sums = [np.ones_like(weight) for weight in weights]
    optimizer = optim.build(module, config)
    for scale in (0.01, 0.3, 5.0, 0.1):  # of the third the clip takes most
        gradients = [scale * rng.standard_normal(weight.shape) for weight in weights]
        update(module, optimizer, gradients, config)
        theirs = [20 * gradient for gradient in gradients]
        norm = np.sqrt(sum((gradient**2).sum() for gradient in theirs))
        theirs = [gradient * min(1, 10 / norm) for gradient in theirs]
        for weight, total, gradient in zip(weights, sums, theirs, strict=True):
            total += gradient**2
            weight -= 0.2 * gradient / np.sqrt(total)
    for found, expected in zip(module.parameters(), weights, strict=True):
        assert_close(found.detach(), torch.from_numpy(expected), rtol=1e-6, atol=1e-6)


def test_adamw_decays_matrices_alone():
    config = TrainConfig(rate=0.1, weight_decay=0.5, clip=None)
    module = Weights()
    before = [weight.detach().clone() for weight in module.parameters()]
    zeros = [np.zeros(tuple(weight.shape)) for weight in before]
    update(module, optim.build(module, config), zeros, config)
    assert_close(module.matrix.detach(), before[0] * (1 - 0.1 * 0.5))
    assert_close(module.vector.detach(), before[1])


def test_the_first_step_of_adamw_is_the_rate_wherever_there_is_a_gradient():
    config = TrainConfig(rate=0.1, weight_decay=0.0)
    module = Weights()
    before = module.vector.detach().clone()
    update(module, optim.build(module, config), [np.zeros((2, 2)), np.array([3.0, -0.2])], config)
    assert_close(
        module.vector.detach(), before - 0.1 * torch.tensor([1.0, -1.0]), rtol=0, atol=1e-7
    )


def test_frozen_weights_are_left_out_and_none_left_is_refused():
    module = Weights()
    module.matrix.requires_grad_(requires_grad=False)
    groups = optim.build(module, TrainConfig()).param_groups
    assert [weight is module.vector for group in groups for weight in group["params"]] == [True]
    module.vector.requires_grad_(requires_grad=False)
    with pytest.raises(ConfigError, match="every weight is frozen"):
        optim.build(module, TrainConfig())
