import numpy as np
import pytest

from elmore.errors import ConfigError
from elmore.train.config import TrainConfig


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"lr": 0.0}, "train.lr must be above 0, found 0.0"),
        ({"epochs": -1.0}, "train.epochs must be above 0"),
        ({"steps": 0}, "train.steps must be above 0"),
        ({"max_grad_norm": 0.0}, "train.max_grad_norm must be above 0"),
        ({"grad_accum_steps": 0}, "train.grad_accum_steps must be at least 1, found 0"),
        ({"divergence_window": 0}, "train.divergence_window must be at least 1, found 0"),
        ({"divergence_factor": 1.0}, "train.divergence_factor must be above 1, or none, found 1.0"),
        ({"log_every": 0}, "train.log_every must be at least 1"),
        ({"keep_checkpoints": 0}, "train.keep_checkpoints must be at least 1"),
        ({"patience": -1}, "train.patience must be at least 0"),
        ({"warmup_steps": -1}, "train.warmup_steps must be at least 0"),
        ({"warmup_fraction": 1.5}, "train.warmup_fraction must be from 0 to 1, or none"),
        ({"seed": -1}, "train.seed must be at least 0"),
        ({"seed": 2**32}, r"train.seed must be below 2\*\*32, found 4294967296"),
        ({"betas": (0.9, 1.0)}, "train.betas must be at least 0 and below 1"),
    ],
)
def test_invalid_input_is_refused(values, found):
    with pytest.raises(ConfigError, match=found):
        TrainConfig(**values)


def test_the_largest_seed_is_one_that_numpy_takes():
    np.random.RandomState(TrainConfig(seed=2**32 - 1).seed)


@pytest.mark.parametrize(
    ("values", "batches", "expected"),
    [
        ({"epochs": 3.0}, 100, 300),
        ({"epochs": 0.5}, 100, 50),
        ({"epochs": 2.0, "grad_accum_steps": 4}, 100, 50),
        ({"epochs": 0.001}, 100, 1),  # there is always something to do
        ({"epochs": 3.0, "steps": 7}, 100, 7),
        ({"steps": 7, "grad_accum_steps": 4}, 100, 7),
    ],
)
def test_updates_are_counted_by_epochs_unless_their_number_is_said(values, batches, expected):
    assert TrainConfig(**values).num_steps(batches) == expected
