"""Build the optimizer of a run over its trainable weights."""

from torch import nn, optim

from elmore.errors import ConfigError
from elmore.train import muon
from elmore.train.config import TrainConfig


def build_optimizer(module: nn.Module, config: TrainConfig) -> optim.Optimizer:
    """Return the configured optimizer; the training loop sets its learning rate at each update."""
    trainable = [weight for weight in module.parameters() if weight.requires_grad]
    if not trainable:
        raise ConfigError("every weight is frozen: there is nothing to train")
    if config.optimizer == "adagrad":
        return optim.Adagrad(trainable, lr=config.lr, initial_accumulator_value=config.adagrad_init)
    hidden = muon.hidden_matrices(module) if config.optimizer == "muon" else []
    other_weights = [weight for weight in trainable if not any(weight is one for one in hidden)]
    groups = [
        {"params": [weight for weight in other_weights if weight.dim() > 1]},
        {"params": [weight for weight in other_weights if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [{"weight_decay": config.weight_decay, **group} for group in groups if group["params"]]
    fused = trainable[0].is_cuda
    if config.optimizer == "muon":
        return muon.Muon(
            hidden,
            groups,
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=fused,
        )
    return optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=fused)
