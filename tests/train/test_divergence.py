"""When a mean of losses tells divergence, and when not."""

import math
import random

import pytest

from elmore.train.config import TrainConfig
from elmore.train.divergence import LossMean

FACTOR, WINDOW = TrainConfig().divergence_factor, TrainConfig().divergence_window


def judged(updates, *, window: int = WINDOW, factor: float = FACTOR) -> int | None:
    """Give the update at which (loss, count) of each look divergent, if any."""
    mean = LossMean()
    for step, (loss, count) in enumerate(updates, start=1):
        mean = mean.after(step, loss, count, window=window, factor=factor)
        if mean.value > mean.bound(factor):
            return step
    return None


def test_the_mean_is_over_predictions_and_forgets_by_its_window():
    mean = LossMean()
    for step, (loss, count) in enumerate([(8.0, 1), (2.0, 4), (1.0, 2)], start=1):
        mean = mean.after(step, loss, count, window=2, factor=FACTOR)
    assert mean.value == (8 / 4 + 2 * 4 / 2 + 1 * 2) / (1 / 4 + 4 / 2 + 2)
    assert mean.num_updates == 3
    assert mean.best == mean.value


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_a_healthy_run_over_short_and_long_documents_goes_on(seed, share):
    """A long one has 60 times the spans, and each of them a loss that is 20 times higher."""
    draw = random.Random(seed)

    def update(number: int) -> tuple[float, int]:
        learned = 0.2 + 0.8 * math.exp(-number / 500)
        noise = math.exp(draw.gauss(0, 0.5))
        long = draw.random() < share
        return (6.0 if long else 0.3) * learned * noise, 300 if long else 5

    assert judged(update(number) for number in range(3000)) is None


@pytest.mark.parametrize("spike", [50.0, 200.0])
def test_a_spike_now_and_then_is_healthy(spike):
    assert judged((spike if n % 150 == 70 else 2.0, 100) for n in range(2000)) is None


def test_the_first_updates_are_not_judged():
    assert judged([(0.1, 1), (50.0, 1000), *[(2.0, 100)] * 800]) is None


def test_what_is_learned_by_heart_may_have_losses_many_times_higher():
    assert judged([*[(0.001, 10)] * 500, *[(0.2, 10)] * 500]) is None


@pytest.mark.parametrize(
    ("after", "at"),
    [(1e9, 501), (30.0, 547), (12.0, 709)],
    ids=["explodes", "is far worse", "is worse"],
)
def test_a_run_that_diverges_is_found_out(after, at):
    """3 + (after - 3) (1 - 0.995^k) / (1 - 0.995^(500 + k)) exceeds 9 at update 500 + k."""
    assert judged([(3.0, 10)] * 500 + [(after, 10)] * 300) == at


def test_a_loss_that_creeps_up_is_found_out():
    step = judged((2.0 * 1.01 ** max(0, n - 300), 10) for n in range(2000))
    assert step is not None
    assert 300 + 110 < step < 300 + 350  # 1.01^111 = 3; a mean over 200 comes after it


def test_an_update_without_predictions_changes_no_mean():
    mean = LossMean().after(1, 2.0, 10, window=1, factor=FACTOR)
    assert mean.after(2, 0.0, 0, window=10, factor=FACTOR).value == 2.0
    assert LossMean().after(1, 0.0, 0, window=1, factor=FACTOR).value == 0.0
