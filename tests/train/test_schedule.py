"""Schedules by their definitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.train.config import TrainConfig
from elmore.train.schedule import lr_factor, restart_warmup

KINDS = ("constant", "cosine", "inverse_sqrt", "plateau")


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_rises_evenly_to_its_highest(kind):
    config = TrainConfig(schedule=kind, warmup_steps=4)
    assert [lr_factor(config, step, 100) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_steps", "warmup"), [(18, 1), (200, 20), (1000, 100), (5000, 100)])
def test_a_warm_up_takes_at_most_a_tenth_of_the_run(kind, num_steps, warmup):
    config = TrainConfig(schedule=kind, warmup_steps=100)
    factors = [lr_factor(config, step, num_steps) for step in range(num_steps)]
    assert factors.index(1.0) == warmup - 1
    assert lr_factor(config, 0, 9) == pytest.approx(1.0)  # too short for any


def test_a_constant_rate_stays():
    config = TrainConfig(schedule="constant", warmup_steps=2)
    assert {lr_factor(config, step, 50) for step in range(1, 50)} == {1.0}


def test_a_cosine_falls_from_its_highest_to_a_hundredth():
    config = TrainConfig(schedule="cosine", warmup_steps=10)
    assert lr_factor(config, 10, 110) == 1.0
    assert lr_factor(config, 60, 110) == pytest.approx(0.01 + 0.99 / 2)
    assert lr_factor(config, 35, 110) == pytest.approx(0.01 + 0.99 * (1 + math.sqrt(0.5)) / 2)
    assert lr_factor(config, 110, 110) == pytest.approx(0.01)
    assert lr_factor(config, 1000, 110) == pytest.approx(0.01)


@pytest.mark.parametrize("warmup", [0, 1, 16])
def test_an_inverse_square_root_halves_where_the_steps_are_four_times_as_many(warmup):
    config = TrainConfig(schedule="inverse_sqrt", warmup_steps=warmup)
    top = max(1, warmup)
    assert lr_factor(config, top - 1, 10**6) == 1.0
    for factor in (4, 9, 100):
        assert lr_factor(config, factor * top - 1, 10**6) == pytest.approx(factor**-0.5)


@given(st.sampled_from(KINDS), st.integers(0, 50), st.integers(1, 200), st.integers(0, 300))
def test_no_rate_is_above_the_highest_or_nothing(kind, warmup, num_steps, step):
    assert 0 < lr_factor(TrainConfig(schedule=kind, warmup_steps=warmup), step, num_steps) <= 1


@given(st.sampled_from(KINDS), st.integers(0, 50), st.integers(1, 3000), st.integers(0, 3000))
def test_a_restart_warms_up_to_the_rate_of_the_schedule_and_follows_it(
    kind, warmup, num_steps, restart
):
    restart = min(restart, num_steps - 1)
    config = TrainConfig(schedule=kind, warmup_steps=warmup)
    length = restart_warmup(restart, num_steps)
    assert length == max(1, min(100, (num_steps - restart) // 10))
    for step in range(restart, min(restart + length + 5, num_steps)):
        share = min(1.0, (step - restart + 1) / length)
        expected = share * lr_factor(config, step, num_steps)
        assert lr_factor(config, step, num_steps, restart) == pytest.approx(expected, rel=1e-12)
    last = num_steps - 1
    if last >= restart + length - 1:
        assert lr_factor(config, last, num_steps, restart) == lr_factor(config, last, num_steps)
