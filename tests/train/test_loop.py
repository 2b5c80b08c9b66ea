"""The loop by its definition: what is summed over, what is carried, what is drawn."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from elmore.train import optimizers, schedule
from elmore.train.config import TrainConfig
from elmore.train.distributed import SINGLE_PROCESS
from elmore.train.loop import StepOutput, run_steps
from tests.support.toy_training import Forgetful, Line, Toy

CPU = torch.device("cpu")


def updates(toy: Toy, config: TrainConfig, num_steps: int, start_step: int = 0, **more):
    optimizer = more.pop("optimizer", None) or optimizers.build_optimizer(toy.module, config)
    return run_steps(
        toy,
        optimizer,
        config,
        num_steps=num_steps,
        device=CPU,
        dist_env=SINGLE_PROCESS,
        start_step=start_step,
        **more,
    )


def test_an_update_is_gradient_descent_on_the_mean():
    """AdamW's first update tells the sign of a gradient; Adagrad from a huge sum, its size."""
    config = TrainConfig(
        optimizer="adagrad", adagrad_init=1e12, lr=1e5, warmup_steps=0, schedule="constant",
        max_grad_norm=None,
    )  # fmt: skip
    toy = Toy()
    inputs, targets = toy.make_batch(0)
    weight = toy.module.weight.detach().clone().requires_grad_()
    loss = (inputs @ weight - targets).square().mean()
    loss.backward()
    (step,) = updates(toy, config, 1)
    assert_close(step.loss, loss.detach())
    assert step.count.item() == 4
    # rate / sqrt(accumulator) = 0.1
    assert_close(
        toy.module.weight.detach(), (weight - 0.1 * weight.grad).detach(), rtol=1e-6, atol=0
    )


def test_the_norm_is_that_before_the_clip_and_the_clip_bounds_the_update():
    shared = {"optimizer": "adagrad", "adagrad_init": 1e12, "lr": 1e6, "warmup_steps": 0}
    free, bound = Toy(), Toy()
    before = free.module.weight.detach().clone()
    (loose,) = updates(free, TrainConfig(max_grad_norm=None, **shared), 1)
    (tight,) = updates(bound, TrainConfig(max_grad_norm=0.5, **shared), 1)
    assert_close(loose.grad_norm, tight.grad_norm)
    moved = torch.cat([bound.module.weight.detach() - before, bound.module.bias.detach()])
    assert moved.norm().item() == pytest.approx(0.5, rel=1e-5)
    assert loose.grad_norm.item() > 0.5


def test_rates_follow_the_schedule():
    config = TrainConfig(lr=0.01, warmup_steps=3, schedule="cosine")
    result = [step.lr for step in updates(Toy(), config, 8)]
    assert result == [0.01 * schedule.lr_factor(config, number, 8) for number in range(8)]


@given(st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=1, max_size=4))
def test_accumulated_batches_of_any_size_are_one_large_batch(sizes):
    """The same rows in one batch or one after another, clipped to the same norm."""

    class Uneven(Toy):
        def make_batch(self, number):
            rows = sizes[number // 3][number % 3]
            return tuple(each[:rows] for each in Toy(rows=6).make_batch(number))

    class Large(Uneven):
        def make_batch(self, number):
            some = [super(Large, self).make_batch(number * 3 + part) for part in range(3)]
            return tuple(torch.cat(each) for each in zip(*some, strict=True))

    small, large = Uneven(Forgetful()), Large(Forgetful())
    config = {"lr": 0.05, "warmup_steps": 2, "max_grad_norm": 0.5}
    result = list(updates(small, TrainConfig(grad_accum_steps=3, **config), len(sizes)))
    expected = list(updates(large, TrainConfig(**config), len(sizes)))
    assert [step.count.item() for step in result] == [sum(three) for three in sizes]
    for one, other in zip(result, expected, strict=True):
        assert_close(
            (one.loss, one.count, one.grad_norm), (other.loss, other.count, other.grad_norm)
        )
    assert_close(small.module.state_dict(), large.module.state_dict())


def test_an_accumulated_gradient_is_divided_once_by_the_count_of_all_batches():
    """One prediction with a gradient of 11, then nine of 1: 20 over 10 predictions."""

    class Uneven(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, batch, carried):
            gradient, count = batch
            return StepOutput((self.weight * gradient).sum(), torch.tensor(count), {})

    class Batches(Toy):
        def make_batch(self, number):
            return [(11.0, 1), (9.0, 9)][number]

    (step,) = updates(Batches(Uneven()), TrainConfig(grad_accum_steps=2), 1)
    assert (step.grad_norm.item(), step.loss.item(), step.count.item()) == (2.0, 2.0, 10)


def test_gradients_of_any_type_are_divided_and_weights_without_one_are_left_alone():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow = nn.Parameter(torch.ones(1))
            self.wide = nn.Parameter(torch.ones(1, dtype=torch.float64))
            self.unused = nn.Parameter(torch.ones(1))

        def forward(self, batch, carried):
            return StepOutput((self.narrow + self.wide).sum() * 12, torch.tensor(4), {})

    toy = Toy(Mixed())
    (step,) = updates(toy, TrainConfig(max_grad_norm=None, weight_decay=0.0), 1)
    assert_close(step.grad_norm, torch.tensor(18.0).sqrt(), check_dtype=False)  # 3 and 3
    assert toy.module.unused.item() == 1
    assert toy.module.narrow.item() < 1


class WithAuxiliary(nn.Module):
    """The losses a * w and b * w of a batch (a, b, number of predictions)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, batch, carried):
        first, second, count = batch
        return StepOutput(self.weight * first, torch.tensor(count), {}, self.weight * second)


def test_an_auxiliary_loss_is_optimized_and_reported_apart():
    """Losses of 7 + 1 and 1 + 3 over 1 + 3 predictions: both means count for the gradient."""

    class Batches(Toy):
        def make_batch(self, number):
            return [(7.0, 1.0, 1), (1.0, 3.0, 3)][number]

    (step,) = updates(Batches(WithAuxiliary()), TrainConfig(grad_accum_steps=2), 1)
    assert step.auxiliary_loss is not None
    assert (step.loss.item(), step.auxiliary_loss.item()) == (2.0, 1.0)
    assert (step.grad_norm.item(), step.count.item()) == (3.0, 4)
    (step,) = updates(Toy(), TrainConfig(), 1)
    assert step.auxiliary_loss is None


def test_the_recurrent_state_is_carried_between_batches_of_an_update():
    seen = []

    class Watched(Line):
        def forward(self, batch, carried):
            output = super().forward(batch, carried)
            seen.append((carried, output.state))
            return output

    list(updates(Toy(Watched()), TrainConfig(grad_accum_steps=2), 3))
    assert seen[0][0] is None
    assert len(seen) == 6
    for (_, given_), (taken, _) in itertools.pairwise(seen):
        assert_close(taken, given_)
        assert not taken["memory"].requires_grad


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("cut", [1, 4, 7])
def test_a_resumed_loop_equals_an_uninterrupted_one(cut, parts):
    """Bit for bit, with draws: weights, optimiser and what is carried are all there is to know."""
    config = TrainConfig(lr=0.05, warmup_steps=3, grad_accum_steps=parts, seed=5)
    whole, stopped = Toy(Line(dropout=0.5)), Toy(Line(dropout=0.5))
    expected = list(updates(whole, config, 8))
    optimizer = optimizers.build_optimizer(stopped.module, config)
    result = list(itertools.islice(updates(stopped, config, 8, optimizer=optimizer), cut))
    torch.rand(17)  # whoever draws meanwhile leaves no trace
    result += updates(
        stopped, config, 8, optimizer=optimizer, start_step=cut, state=result[-1].state
    )
    assert [step.number for step in result] == list(range(1, 9))
    for one, other in zip(result, expected, strict=True):
        assert one.loss.item() == other.loss.item()
    assert all(
        torch.equal(one, other)
        for one, other in zip(stopped.module.parameters(), whole.module.parameters(), strict=True)
    )


def test_draws_differ_between_updates_parts_and_seeds():
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))
            self.drawn = []

        def forward(self, batch, carried):
            self.drawn.append(torch.rand(1).item())
            return StepOutput(self.weight.sum(), torch.tensor(1.0), {})

    def drawn(seed: int) -> list[float]:
        toy = Toy(Drawing())
        list(updates(toy, TrainConfig(grad_accum_steps=2, seed=seed), 5))
        return toy.module.drawn

    assert len({*drawn(0), *drawn(1)}) == 20
    assert drawn(0) == drawn(0)


@pytest.mark.parametrize("fused", [False, True])
def test_every_update_raises_the_version_of_the_weights(fused):
    """Torch does not count the writes of fused optimizers; caches of weights need the count."""
    toy = Toy()
    optimizer = torch.optim.AdamW(toy.module.parameters(), fused=fused)
    versions = [toy.module.weight._version]
    for _ in updates(toy, TrainConfig(warmup_steps=0), 3, optimizer=optimizer):
        versions.append(toy.module.weight._version)
    assert versions == sorted(set(versions))
    assert len(versions) == 4
