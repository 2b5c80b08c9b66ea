"""Optimisers over the weights that are to be learned; frozen ones are left out."""

from torch import nn, optim

from elmore.errors import ConfigError
from elmore.train import muon
from elmore.train.config import TrainConfig


def build(module: nn.Module, config: TrainConfig) -> optim.Optimizer:
    """Make the optimiser; its rate is set anew at each update."""
    wanted = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    if not wanted:
        raise ConfigError("every weight is frozen: there is nothing to train")
    if config.optimizer == "adagrad":
        return optim.Adagrad(
            wanted.values(),
            lr=config.lr,
            initial_accumulator_value=config.adagrad_init,
        )
    hidden = muon.hidden_matrices(module) if config.optimizer == "muon" else []
    others = [weight for weight in wanted.values() if not any(weight is one for one in hidden)]
    matrices = [weight for weight in others if weight.dim() > 1]
    vectors = [weight for weight in others if weight.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    on_gpu = next(iter(wanted.values())).is_cuda
    if config.optimizer == "muon":
        return muon.Muon(
            hidden,
            groups,
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=on_gpu,
        )
    return optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=config.betas,
        fused=on_gpu,
    )
