"""A checkpoint: everything needed to resume a run after an update, complete or absent.

model.safetensors
optimizer.safetensors         without it, a warm restart: the same weights and schedule with a fresh
                              optimizer
recurrent_state.safetensors
average.safetensors           of a run with `train.ema_decay`
state.json                    how far the run has come
"""

import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn, optim

from elmore import atomic, config, strict_json
from elmore.errors import ConfigError, DataError
from elmore.train.divergence import LossMean
from elmore.train.saved_recipe import FORMAT
from elmore.train.weight_average import WeightAverage

_OLD_KEYS = {"best": "best_score", "stale": "evals_since_best"}  # of formats 1 and 2
_OPTIMIZER = "optimizer"
_AVERAGE = "average"
_STATE = "recurrent_state"
_UNREADABLE = (OSError, SafetensorError, RuntimeError, ValueError, LookupError)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run has come: the part of a checkpoint that is not tensors."""

    step: int
    """Updates so far."""
    best_score: float | None
    evals_since_best: int
    loss_mean: LossMean = field(default_factory=LossMean)
    restart_step: int | None = None
    """Updates before the last warm restart; None: there was none."""
    num_halvings: int = 0
    """How often the schedule `plateau` has halved the learning rate."""

    def __post_init__(self) -> None:
        if self.num_halvings < 0:
            raise ConfigError(f"num_halvings must be at least 0, found {self.num_halvings}")
        if self.restart_step is not None and not 0 <= self.restart_step <= self.step:
            raise ConfigError(f"restart_step must be from 0 to step, found {self.restart_step}")


class Checkpoint(NamedTuple):
    """The state of training after an update, apart from model and optimizer."""

    progress: Progress
    state: dict[str, Tensor]
    """The recurrent state."""


def write_checkpoint(
    path: Path,
    module: nn.Module,
    optimizer: optim.Optimizer,
    checkpoint: Checkpoint,
    average: WeightAverage | None,
) -> None:
    """Write a checkpoint into a new folder."""
    tensors = {
        "model": module.state_dict(),
        _OPTIMIZER: _flatten_state(optimizer),
        _STATE: checkpoint.state,
        **({_AVERAGE: average.averages} if average else {}),
    }
    with atomic.folder(path) as folder:
        for name, named in tensors.items():
            plain = {k: v.detach().contiguous().cpu() for k, v in named.items()}
            save_file(plain, folder / f"{name}.safetensors")
        progress = {"format": FORMAT, **asdict(checkpoint.progress)}
        (folder / "state.json").write_bytes(strict_json.encode(progress, indent=2))


def read_checkpoint(
    path: Path,
    step: int,
    module: nn.Module,
    optimizer: optim.Optimizer,
    device: torch.device,
    average: WeightAverage | None,
) -> Checkpoint:
    """Read the checkpoint of an update into a module, its optimizer and its average.

    If the optimizer's file is absent, the optimizer is left as it is and `restart_step` is the
    checkpoint's own step. The recurrent state may then be absent too. A damaged file is an error.
    """
    restarts = not os.path.lexists(path / f"{_OPTIMIZER}.safetensors")
    try:
        values = config.read_json(path / "state.json")
        old = values.get("format") in (1, 2)
        state_path = path / f"{'carried' if old else _STATE}.safetensors"
        module.load_state_dict(load_file(path / "model.safetensors"))
        absent = restarts and not os.path.lexists(state_path)
        state = {} if absent else load_file(state_path)
        if average is not None:
            average.load(load_file(path / f"{_AVERAGE}.safetensors"))
    except _UNREADABLE as error:
        raise DataError(
            f"{path}: not a readable checkpoint ({error}); delete it to resume from an earlier one"
        ) from error
    progress = _build_progress(values, path)
    if progress.step != step:
        raise DataError(f"{path}: its state.json is of update {progress.step}; delete it")
    if restarts:
        progress = replace(progress, restart_step=step)
    else:  # last, because the advice there is true only if all the rest is readable
        _load_optimizer(optimizer, path)
    return Checkpoint(progress, {name: tensor.to(device) for name, tensor in state.items()})


def _build_progress(values: dict[str, Any], path: Path) -> Progress:
    """Check the content of state.json; keys of earlier formats get their present names."""
    config.check_format(values, FORMAT, str(path))
    if values.pop("format") < 3:
        values.pop("first_loss", None)  # format 1 had no running mean of the loss
        values = {_OLD_KEYS.get(key, key): value for key, value in values.items()}
    return config.build(Progress, values, str(path / "state.json"))


def _load_optimizer(optimizer: optim.Optimizer, path: Path) -> None:
    """Load the optimizer of a checkpoint."""
    try:
        flat = load_file(path / f"{_OPTIMIZER}.safetensors")
        optimizer.load_state_dict(_unflatten_state(optimizer, flat))
    except _UNREADABLE as error:
        raise DataError(
            f"{path}: not a readable checkpoint ({error}); delete it to resume from an earlier "
            f"one, or only its {_OPTIMIZER}.safetensors for a warm restart"
        ) from error


def _flatten_state(optimizer: optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's tensors by `index of the weight.name`."""
    return {
        f"{index}.{name}": torch.as_tensor(value)
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }


def _unflatten_state(optimizer: optim.Optimizer, flat: dict[str, Tensor]) -> dict[str, Any]:
    groups = [(group, weight) for group in optimizer.param_groups for weight in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in flat.items():
        index, _, name = key.partition(".")
        shape = () if name == "step" else groups[int(index)][1].shape
        if value.shape != shape or not value.is_floating_point():
            raise ValueError(f"{key} of the optimizer is {value.dtype} of {tuple(value.shape)}")
        state.setdefault(int(index), {})[name] = value
    for index, values in state.items():
        if values.keys() != _state_names(optimizer, groups[index][0]):
            raise ValueError(f"weight {index} of the optimizer has {', '.join(values)[:80]}")
    return {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}


def _state_names(optimizer: optim.Optimizer, group: dict[str, Any]) -> set[str]:
    """Return the names of the tensors that an optimizer has for each weight of a group."""
    if isinstance(optimizer, optim.Adagrad):
        return {"step", "sum"}
    return {"step", "momentum"} if group.get("orthogonal") else {"step", "exp_avg", "exp_avg_sq"}
