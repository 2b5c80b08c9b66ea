"""The learning rate of an update, as a share of the highest: pure functions of the step."""

import math

from elmore.train.config import TrainConfig


def share(config: TrainConfig, step: int, num_steps: int) -> float:
    """Give the share for update `step` (the first is 0) of `num_steps`."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "cosine":
        done = (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps)
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(1, config.warmup_steps) / (step + 1))
    return 1.0
