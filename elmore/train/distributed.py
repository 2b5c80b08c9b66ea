"""Data-parallel training in several processes started by torchrun; a single process needs none."""

import contextlib
import os
import re
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from elmore.errors import ConfigError, ElmoreError


class DistEnv(NamedTuple):
    """Rank of this process and number of processes."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Rank on this machine, which is the index of its GPU."""

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def local_rows(self, num_rows: int) -> range:
        """Return the rows of a batch of `num_rows` that belong to this process."""
        if num_rows % self.world_size:
            raise ConfigError(
                f"{num_rows} rows cannot be divided evenly among {self.world_size} processes; make "
                f"stream.batch_size a multiple of {self.world_size}"
            )
        num_local = num_rows // self.world_size
        return range(self.rank * num_local, (self.rank + 1) * num_local)


SINGLE_PROCESS = DistEnv()


@contextlib.contextmanager
def init_distributed(device: str) -> Iterator[tuple[DistEnv, torch.device]]:
    """Join the process group that torchrun describes; without torchrun, run as one process.

    Args:
        device: `auto`, `cpu`, `cuda` or `cuda:N`.

    Yields:
        The environment of this process and its device.

    Raises:
        ElmoreError: Another process of the group died.
    """
    variables = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    env = DistEnv(*(int(os.environ.get(key, default)) for key, default in variables))
    own_device = select_device(device, env)
    # Kernels of Triton and CUDA graphs run on the current device, whatever their tensors are on.
    is_cuda = own_device.type == "cuda"
    with torch.cuda.device(own_device) if is_cuda else contextlib.nullcontext():
        if env.world_size == 1:
            yield env, own_device
            return
        with _process_group("nccl" if is_cuda else "gloo"):
            yield env, own_device


@contextlib.contextmanager
def _process_group(backend: str) -> Iterator[None]:
    """Join the processes that torchrun started."""
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    group = dist.group.WORLD
    try:
        yield
    except RuntimeError as error:
        if re.search(r"Connection|NCCL|[Gg]loo|Broken pipe", str(error)):
            # The frames of the traceback hold the failed work, which holds the process group. If
            # they were its last owner, its destructor would wait, with the GIL held, for threads
            # of the group that wait for the GIL.
            traceback.clear_frames(error.__traceback__)
            raise ElmoreError(
                "another process of this training died; start all of them again with --resume"
            ) from error
        raise
    finally:
        dist.destroy_process_group()
        del group


def select_device(name: str, env: DistEnv = SINGLE_PROCESS) -> torch.device:
    """Return the device of a process; `auto` is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{env.local_rank}"
    match = re.fullmatch(r"cpu|cuda:(\d+)", name)
    if not match:
        raise ConfigError(f"unknown device {name!r}; use auto, cpu or cuda")
    if match[1] is not None and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} is not available: there is no CUDA GPU; use cpu")
    if match[1] is not None and int(match[1]) >= torch.cuda.device_count():
        raise ConfigError(
            f"device {name!r} is not available: there are {torch.cuda.device_count()} CUDA GPUs; "
            "start no more processes than there are GPUs"
        )
    return torch.device(name)


def all_reduce_sum(env: DistEnv, values: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes."""
    if env.world_size > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def gather_rows(env: DistEnv, rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """Concatenate the rows of all processes, in rank order."""
    if env.world_size == 1:
        return rows
    result = {}
    for name, tensor in sorted(rows.items()):
        parts = [torch.empty_like(tensor) for _ in range(env.world_size)]
        dist.all_gather(parts, tensor.contiguous())
        result[name] = torch.cat(parts)
    return result


def scatter_rows(env: DistEnv, rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return this process's part of gathered rows; the number of processes may have changed."""
    return {
        name: tensor[env.local_rows(len(tensor)).start : env.local_rows(len(tensor)).stop]
        for name, tensor in rows.items()
    }
