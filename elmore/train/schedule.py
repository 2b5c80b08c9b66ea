"""Learning rate schedules: pure functions of the step, and of the evaluations for `plateau`.

A warm restart continues with the saved weights and a fresh optimizer. Its learning rate rises from
0 to the value that the schedule has by then, over updates of its own.
"""

import math

from elmore.train.config import TrainConfig

_RESTART_WARMUP = 100  # updates; AdamW's second moments average over as many by default


def lr_factor(
    config: TrainConfig, step: int, num_steps: int, restart_step: int | None = None
) -> float:
    """Return the factor of `config.lr` at update `step` (0-based) of `num_steps`.

    `restart_step` is the number of updates before the last warm restart, if there was one.
    """
    factor = _schedule_factor(config, step, num_steps)
    if restart_step is None:
        return factor
    return factor * min(1.0, (step - restart_step + 1) / restart_warmup(restart_step, num_steps))


def halves_lr(config: TrainConfig, evals_since_best: int) -> bool:
    """Return whether the learning rate is halved after an evaluation that was no improvement.

    `evals_since_best` is the number of evaluations since the best one, at least 1.
    """
    return config.schedule == "plateau" and evals_since_best % config.plateau_patience == 0


def warmup_steps(config: TrainConfig, num_steps: int) -> int:
    """Return the updates of the warm-up: those of the config, within its fraction of the run."""
    if config.warmup_fraction is None:
        return config.warmup_steps
    return min(config.warmup_steps, int(config.warmup_fraction * num_steps))


def restart_warmup(restart_step: int, num_steps: int) -> int:
    """Return the updates of the warm-up after a restart: 100, or a tenth of those left if fewer."""
    return max(1, min(_RESTART_WARMUP, (num_steps - restart_step) // 10))


def _schedule_factor(config: TrainConfig, step: int, num_steps: int) -> float:
    warmup = warmup_steps(config, num_steps)
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "cosine":
        done = (step - warmup) / max(1, num_steps - warmup)
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(1, warmup) / (step + 1))
    return 1.0
