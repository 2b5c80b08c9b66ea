"""Learning rate schedules: pure functions of the step."""

import math

from elmore.train.config import TrainConfig


def lr_factor(config: TrainConfig, step: int, num_steps: int) -> float:
    """Return the factor of `config.lr` at update `step` (0-based) of `num_steps`."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "cosine":
        done = (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps)
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(1, config.warmup_steps) / (step + 1))
    return 1.0
