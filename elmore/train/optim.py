"""Optimisers over the weights that are to be learned; frozen ones are left out."""

from torch import nn, optim

from elmore.errors import ConfigError
from elmore.train.config import TrainConfig


def build(module: nn.Module, config: TrainConfig) -> optim.Optimizer:
    """Make the optimiser; its rate is set anew at each update."""
    wanted = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    if not wanted:
        raise ConfigError("every weight is frozen: there is nothing to train")
    if config.optimizer == "adagrad":
        return optim.Adagrad(
            wanted.values(),
            lr=config.rate,
            initial_accumulator_value=config.initial_accumulator,
        )
    matrices = [weight for weight in wanted.values() if weight.dim() > 1]
    vectors = [weight for weight in wanted.values() if weight.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    on_gpu = next(iter(wanted.values())).is_cuda
    return optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.rate,
        betas=config.betas,
        fused=on_gpu,
    )
