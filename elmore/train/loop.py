"""The one loop: batches in, finished updates out. It knows no model, logs nothing, saves nothing.

What is trained gives the sum of its losses over a batch, the number of things predicted, and
what it carries to the next batch, rows first (a recurrent state; nothing, for most). An update sums
the gradients of all its batches and processes, divides them once by the number of things predicted
in all, and then clips them: how examples are divided into batches makes no difference. Draws are
seeded anew at each batch by its number, so that where a run was stopped leaves no trace in them.
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.nn.parallel import DistributedDataParallel

from elmore.train import precision, schedule
from elmore.train.batches import ahead, moved
from elmore.train.config import TrainConfig
from elmore.train.distributed import Ranks, sum_over

Carried = dict[str, Tensor]


class Outcome(NamedTuple):
    """What a module makes of a batch."""

    loss: Tensor
    """Summed over everything predicted."""
    count: Tensor
    carried: Carried


class Trainable(Protocol):
    """Something the engine can train. `module(batch, carried)` gives an `Outcome`."""

    batches_per_epoch: int
    unit: str
    """What is predicted, and counted: tokens, examples, …"""
    metric: str
    """The score that decides which weights are best."""
    higher_is_better: bool

    @property
    def module(self) -> nn.Module:
        """What is trained."""
        ...

    def batch(self, number: int) -> Any:  # noqa: ANN401 -- its own kind of batch
        """Give batch `number`, on the CPU: a matter of the number alone."""
        ...

    def evaluate(self) -> dict[str, float]:
        """Score the module on held-out data; empty where there is none."""
        ...

    def save(self, destination: Path, scores: dict[str, float]) -> None:
        """Write the model as others will load it, in place of an earlier one."""
        ...


class Step(NamedTuple):
    """A finished update. Reading a tensor waits for the device."""

    number: int
    """Updates so far, this one included."""
    loss: Tensor
    """The mean over everything predicted, by all processes."""
    count: Tensor
    norm: Tensor
    """Of all gradients together, before they were clipped."""
    rate: float
    waited: float
    """Seconds without data."""
    carried: Carried


def steps(
    trainable: Trainable,
    optimizer: optim.Optimizer,
    config: TrainConfig,
    *,
    num_steps: int,
    device: torch.device,
    ranks: Ranks,
    done: int = 0,
    carried: Carried | None = None,
) -> Iterator[Step]:
    """Make updates `done + 1` to `num_steps`, each when it is asked for."""
    numbers = precision.resolve(config, device)
    module = _parallel(trainable.module, ranks)
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    parts = config.grad_accum_steps
    data = ahead(trainable.batch, range(done * parts, num_steps * parts), pinned=device)
    for step in range(done, num_steps):
        rate = config.lr * schedule.share(config, step, num_steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        losses, counts, waited = [], [], 0.0
        for part in range(parts):
            begun = time.perf_counter()
            batch = next(data)
            waited += time.perf_counter() - begun
            batch = moved(batch, device)
            torch.manual_seed(_seed(config.seed, step, part, ranks.rank))
            with precision.computing(numbers, device), _gathering(module, part == parts - 1):
                outcome = module(batch, carried)
                outcome.loss.backward()
            carried = {name: tensor.detach() for name, tensor in outcome.carried.items()}
            losses.append(outcome.loss.detach())
            counts.append(outcome.count)
        loss = sum_over(ranks, torch.stack(losses).sum())
        count = sum_over(ranks, torch.stack(counts).sum())
        total = count.clamp(min=1)  # where nothing is predicted, the gradient is 0
        # DDP takes the mean over the processes; what is wanted is the sum.
        _scale_gradients(weights, ranks.size / total.double())
        norm = nn.utils.clip_grad_norm_(weights, config.max_grad_norm or float("inf"))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield Step(step + 1, loss / total, count, norm, rate, waited, carried or {})


def _scale_gradients(weights: list[nn.Parameter], factor: Tensor) -> None:
    """Scale the summed gradients in place.

    Batches of an update may predict different numbers of things, and each process too, so the
    count to divide by is known only after the last of them.
    """
    for weight in weights:
        if weight.grad is not None:
            weight.grad.mul_(factor)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _parallel(module: nn.Module, ranks: Ranks) -> nn.Module:
    if ranks.size == 1:
        return module
    return DistributedDataParallel(module, gradient_as_bucket_view=True)


def _gathering(module: nn.Module, last: bool) -> Any:  # noqa: ANN401 -- a context
    """Let the processes add up their gradients at the last batch of an update alone."""
    if last or not isinstance(module, DistributedDataParallel):
        return nullcontext()
    return module.no_sync()
