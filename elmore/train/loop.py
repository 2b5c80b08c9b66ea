"""The training loop: takes batches, yields finished updates. It neither logs nor saves.

A module returns the summed loss of a batch, the number of predictions, and the state to pass to the
next batch, rows first (a recurrent state; empty for most). An update sums the gradients of its
batches and processes, divides them once by the total number of predictions, and then clips them, so
that the way examples are divided into batches makes no difference. The random generator is seeded
at each batch from its number, so that a resumed run draws the same numbers.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.nn.parallel import DistributedDataParallel

from elmore.train import precision, schedule
from elmore.train.config import TrainConfig
from elmore.train.distributed import DistEnv, all_reduce_sum
from elmore.train.prefetch import prefetch, to_device

State = dict[str, Tensor]


class StepOutput(NamedTuple):
    """What a module returns for a batch."""

    loss: Tensor
    """Sum over all predictions."""
    count: Tensor
    """Number of predictions."""
    state: State
    auxiliary_loss: Tensor | None = None
    """Sum of a second loss, which is optimized too but reported apart."""

    @property
    def objective(self) -> Tensor:
        """What is optimized: the sum of the losses."""
        return self.loss if self.auxiliary_loss is None else self.loss + self.auxiliary_loss

    @property
    def sums(self) -> list[Tensor]:
        """The loss, the count and, if there is one, the auxiliary loss, without gradients."""
        tensors = (self.loss, self.count, self.auxiliary_loss)
        return [tensor.detach() for tensor in tensors if tensor is not None]


class Trainable(Protocol):
    """Something to train; `module(batch, state)` returns a `StepOutput`."""

    batches_per_epoch: int
    unit: str
    """What `StepOutput.count` counts: tokens, examples, ..."""
    metric: str
    """The score that selects the best model."""
    higher_is_better: bool

    @property
    def module(self) -> nn.Module:
        """The module to train."""
        ...

    def make_batch(self, number: int) -> Any:  # noqa: ANN401 -- its own kind of batch
        """Return batch `number`, on the CPU; a pure function of the number."""
        ...

    def evaluate(self) -> dict[str, float]:
        """Score the module on held-out data; empty if there is none."""
        ...

    def save(self, destination: Path, scores: dict[str, float]) -> None:
        """Write the model for use, replacing an earlier one."""
        ...


class Step(NamedTuple):
    """A finished update. Reading a tensor waits for the device."""

    number: int
    """Number of updates so far, including this one."""
    loss: Tensor
    """Mean over all predictions of all processes."""
    count: Tensor
    grad_norm: Tensor
    """Global gradient norm before clipping."""
    lr: float
    data_seconds: float
    """Time spent waiting for data."""
    state: State
    auxiliary_loss: Tensor | None = None
    """Mean over all predictions of all processes, if there is such a loss."""


def run_steps(
    trainable: Trainable,
    optimizer: optim.Optimizer,
    config: TrainConfig,
    *,
    num_steps: int,
    device: torch.device,
    dist_env: DistEnv,
    start_step: int = 0,
    restart_step: int | None = None,
    state: State | None = None,
    lr_scale: Callable[[], float] = lambda: 1.0,
) -> Iterator[Step]:
    """Make updates `start_step + 1` to `num_steps`, each when it is requested.

    Args:
        trainable: The module and its batches.
        optimizer: Updates the weights of the module.
        config: Learning rate, gradient accumulation, clipping and precision.
        num_steps: Number of updates of the whole run, those before `start_step` included.
        device: Device of the module.
        dist_env: This process among the others.
        start_step: Number of updates that an earlier part of the run has made.
        restart_step: Number of updates before the last warm restart (`schedule.py`), if any.
        state: State to pass to the first batch.
        lr_scale: Called before each update, whose learning rate it multiplies.
    """
    resolved = precision.resolve(config, device)
    module = _wrap_ddp(trainable.module, dist_env)
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    batches_per_step = config.grad_accum_steps
    numbers = range(start_step * batches_per_step, num_steps * batches_per_step)
    batches = prefetch(trainable.make_batch, numbers, device=device)
    for step in range(start_step, num_steps):
        lr = config.lr * schedule.lr_factor(config, step, num_steps, restart_step) * lr_scale()
        for group in optimizer.param_groups:
            group["lr"] = lr
        sums, data_seconds = [], 0.0
        for micro_batch in range(batches_per_step):
            started = time.perf_counter()
            batch = next(batches)
            data_seconds += time.perf_counter() - started
            batch = to_device(batch, device)
            torch.manual_seed(_batch_seed(config.seed, step, micro_batch, dist_env.rank))
            is_last = micro_batch == batches_per_step - 1
            with precision.autocast(resolved, device), _grad_sync(module, is_last=is_last):
                output = module(batch, state)
                output.objective.backward()
            state = {name: tensor.detach() for name, tensor in output.state.items()}
            sums.append(output.sums)
        loss, count, *auxiliary = (
            all_reduce_sum(dist_env, torch.stack(each).sum()) for each in zip(*sums, strict=True)
        )
        total = count.clamp(min=1)  # without predictions the gradient is 0
        # DDP averages over the processes; multiply to get the sum.
        _scale_gradients(weights, dist_env.world_size / total.double())
        grad_norm = nn.utils.clip_grad_norm_(weights, config.max_grad_norm or float("inf"))
        optimizer.step()
        # Caches of packed weights rely on version counters, which fused optimizers do not raise.
        torch.autograd.graph.increment_version(weights)
        optimizer.zero_grad(set_to_none=True)
        finished = Step(step + 1, loss / total, count, grad_norm, lr, data_seconds, state or {})
        yield finished._replace(auxiliary_loss=auxiliary[0] / total) if auxiliary else finished


def _scale_gradients(weights: list[nn.Parameter], factor: Tensor) -> None:
    """Scale the summed gradients in place.

    Batches and processes may make different numbers of predictions, so the divisor is known only
    after the last batch of an update.
    """
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    for dtype in {gradient.dtype for gradient in gradients}:
        same = [gradient for gradient in gradients if gradient.dtype == dtype]
        torch._foreach_mul_(same, factor.to(dtype))


def _batch_seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _wrap_ddp(module: nn.Module, dist_env: DistEnv) -> nn.Module:
    if dist_env.world_size == 1:
        return module
    return DistributedDataParallel(module, gradient_as_bucket_view=True)


def _grad_sync(module: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
    """Let DDP reduce gradients only at the last batch of an update."""
    if is_last or not isinstance(module, DistributedDataParallel):
        return nullcontext()
    return module.no_sync()
