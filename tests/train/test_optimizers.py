"""The optimisers by their published updates."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from elmore.errors import ConfigError
from elmore.lm import config as recipes
from elmore.train import muon, optimizers
from elmore.train.config import TrainConfig


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64))
        self.vector = nn.Parameter(torch.tensor([0.1, -0.2], dtype=torch.float64))


def update(module: nn.Module, optimizer, gradients: list[np.ndarray], config: TrainConfig) -> None:
    for weight, gradient in zip(module.parameters(), gradients, strict=True):
        weight.grad = torch.from_numpy(gradient.copy())
    nn.utils.clip_grad_norm_(module.parameters(), config.max_grad_norm or float("inf"))
    optimizer.step()


def test_the_original_recipe_makes_the_updates_of_the_paper():
    """Gradients of 20 times the loss, clipped at 10 together, Adagrad from an accumulator of 1."""
    config = recipes.read_pretrain_recipe("original").train
    module, rng = Weights(), np.random.default_rng(0)
    weights = [weight.detach().numpy().copy() for weight in module.parameters()]
    sums = [np.ones_like(weight) for weight in weights]
    optimizer = optimizers.build_optimizer(module, config)
    for scale in (0.01, 0.3, 5.0, 0.1):  # of the third the clip takes most
        gradients = [scale * rng.standard_normal(weight.shape) for weight in weights]
        update(module, optimizer, gradients, config)
        theirs = [20 * gradient for gradient in gradients]
        norm = np.sqrt(sum((gradient**2).sum() for gradient in theirs))
        theirs = [gradient * min(1, 10 / norm) for gradient in theirs]
        for weight, total, gradient in zip(weights, sums, theirs, strict=True):
            total += gradient**2
            weight -= 0.2 * gradient / np.sqrt(total)
    for result, expected in zip(module.parameters(), weights, strict=True):
        assert_close(result.detach(), torch.from_numpy(expected), rtol=1e-6, atol=1e-6)


def test_adamw_decays_matrices_alone():
    config = TrainConfig(lr=0.1, weight_decay=0.5, max_grad_norm=None)
    module = Weights()
    before = [weight.detach().clone() for weight in module.parameters()]
    zeros = [np.zeros(tuple(weight.shape)) for weight in before]
    update(module, optimizers.build_optimizer(module, config), zeros, config)
    assert_close(module.matrix.detach(), before[0] * (1 - 0.1 * 0.5))
    assert_close(module.vector.detach(), before[1])


def test_the_first_step_of_adamw_is_the_rate_wherever_there_is_a_gradient():
    config = TrainConfig(lr=0.1, weight_decay=0.0)
    module = Weights()
    before = module.vector.detach().clone()
    update(
        module,
        optimizers.build_optimizer(module, config),
        [np.zeros((2, 2)), np.array([3.0, -0.2])],
        config,
    )
    assert_close(
        module.vector.detach(), before - 0.1 * torch.tensor([1.0, -1.0]), rtol=0, atol=1e-7
    )


def test_frozen_weights_are_left_out_and_none_left_is_refused():
    module = Weights()
    module.matrix.requires_grad_(requires_grad=False)
    groups = optimizers.build_optimizer(module, TrainConfig()).param_groups
    assert [weight is module.vector for group in groups for weight in group["params"]] == [True]
    module.vector.requires_grad_(requires_grad=False)
    with pytest.raises(ConfigError, match="every weight is frozen"):
        optimizers.build_optimizer(module, TrainConfig())


class Hidden(nn.Module):
    """One matrix between layers, one lookup table of each kind, one vector."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(5, 3)
        self.layer = nn.Linear(6, 4)
        self.words = Words()


class Words(nn.Module):
    rows_are_lookups = True

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(7, 4))


def test_muon_updates_the_matrices_between_layers_and_adamw_the_rest():
    module = Hidden()
    config = TrainConfig(optimizer="muon", lr=0.01, weight_decay=0.0, max_grad_norm=None)
    optimizer = optimizers.build_optimizer(module, config)
    groups = {group["orthogonal"]: [] for group in optimizer.param_groups}
    for group in optimizer.param_groups:
        groups[group["orthogonal"]] += [id(weight) for weight in group["params"]]
    assert groups[True] == [id(module.layer.weight)]
    assert set(groups[False]) == {id(w) for w in module.parameters()} - {id(module.layer.weight)}

    before = module.layer.weight.detach().clone()
    table = module.words.weight.detach().clone()
    gradients = [np.random.default_rng(0).normal(size=tuple(w.shape)) for w in module.parameters()]
    update(module, optimizer, [one.astype(np.float32) for one in gradients], config)
    change = (before - module.layer.weight.detach()) / 0.01
    singular = torch.linalg.svdvals(change) / (0.2 * 6**0.5)
    assert 0.6 < singular.min() <= singular.max() < 1.3
    assert_close((table - module.words.weight.detach()).abs(), torch.full((7, 4), 0.01))


@pytest.mark.parametrize("shape", [(3, 8, 5), (2, 5, 8), (1, 6, 6)])
def test_orthogonalize_keeps_the_singular_vectors(shape):
    matrices = torch.randn(shape)
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    cores = u.mT @ muon.orthogonalize(matrices) @ v.mT  # diagonal, and near the identity
    diagonals = cores.diagonal(dim1=1, dim2=2)
    assert_close(cores, torch.diag_embed(diagonals), rtol=0, atol=1e-5)
    assert diagonals.min() > 0.3
    assert diagonals.max() < 1.3


def test_muon_decays_its_matrices():
    module = Hidden()
    config = TrainConfig(optimizer="muon", lr=0.1, weight_decay=0.5, max_grad_norm=None)
    before = module.layer.weight.detach().clone()
    zeros = [np.zeros(tuple(w.shape), dtype=np.float32) for w in module.parameters()]
    update(module, optimizers.build_optimizer(module, config), zeros, config)
    assert_close(module.layer.weight.detach(), before * (1 - 0.1 * 0.5))
