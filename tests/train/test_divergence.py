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
        mean = mean.add(step, loss, count, window=window, factor=factor)
        if mean.value > mean.bound(factor):
            return step
    return None


def test_the_mean_is_geometric_over_updates_and_forgets_by_its_window():
    mean = LossMean()
    for step, (loss, count) in enumerate([(8.0, 1), (2.0, 400), (1.0, 2)], start=1):
        mean = mean.add(step, loss, count, window=2, factor=FACTOR)
    weights = (1 / 4, 1 / 2, 1)
    logs = (math.log(8.0), math.log(2.0), math.log(1.0))
    expected = math.exp(sum(map(math.prod, zip(weights, logs, strict=True))) / sum(weights))
    assert mean.value == pytest.approx(expected)
    assert mean.num_updates == 3
    assert mean.best == mean.value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.002, 0.005, 0.01, 0.02, 0.05, 0.3])
def test_a_healthy_run_over_short_and_long_documents_is_not_stopped(seed, share):
    """A long one has 60 times the spans, and each of them a loss that is 20 times higher."""
    draw = random.Random(seed)

    def update(number: int) -> tuple[float, int]:
        learned = 0.2 + 0.8 * math.exp(-number / 500)
        noise = math.exp(draw.gauss(0, 0.5))
        long = draw.random() < share
        return (6.0 if long else 0.3) * learned * noise, 300 if long else 5

    assert judged(update(number) for number in range(3000)) is None


@pytest.mark.parametrize("spike", [50.0, 2e4, 1e9])
def test_an_occasional_loss_spike_is_healthy(spike):
    assert judged((spike if n % 900 == 500 else 2.0, 100) for n in range(2000)) is None


def test_one_batch_with_many_predictions_and_a_high_loss_is_healthy():
    assert judged([*[(0.3, 5)] * 600, (6.0, 3000), *[(0.3, 5)] * 600]) is None


def test_the_first_updates_are_not_judged():
    assert judged([(0.1, 1), (50.0, 1000), *[(2.0, 100)] * 800]) is None


def test_a_memorised_batch_makes_no_other_loss_look_divergent():
    assert judged([*[(0.001, 10)] * 500, *[(0.2, 10)] * 500]) is None


@pytest.mark.parametrize(
    ("good", "before", "after", "at"),
    [
        (500, 3.0, 1e9, 511),
        (500, 3.0, 30.0, 622),
        (500, 3.0, 12.0, 801),
        (119, 5.0, 1e9, 125),
        (149, 5.0, 20.0, 369),
        (49, 5.0, 1e9, 53),
    ],
    ids=["explodes", "is far worse", "is worse", "explodes early", "is worse early", "at once"],
)
def test_a_diverging_run_is_detected(good, before, after, at):
    """`at` is where the weighted mean of both logarithms exceeds that of the best by log 3."""
    assert judged([(before, 10)] * good + [(after, 10)] * 600) == at


def test_a_slowly_rising_loss_is_detected():
    step = judged((2.0 * 1.01 ** max(0, n - 300), 10) for n in range(2000))
    assert step is not None
    assert 300 + 110 < step < 300 + 350  # 1.01^111 = 3; a mean over 200 comes after it


def test_an_update_without_predictions_changes_no_mean():
    mean = LossMean().add(1, 2.0, 10, window=1, factor=FACTOR)
    assert mean.add(2, 0.0, 0, window=10, factor=FACTOR).value == pytest.approx(2.0)
    assert LossMean().add(1, 0.0, 0, window=1, factor=FACTOR).value == 0.0
