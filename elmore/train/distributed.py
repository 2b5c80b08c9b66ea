"""Several processes that train one model, as torchrun starts them; one alone needs none of it."""

import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from elmore.errors import ConfigError, ElmoreError


class Ranks(NamedTuple):
    """Which process this is, and of how many."""

    rank: int = 0
    size: int = 1
    local: int = 0
    """Which of this machine's: the number of its GPU."""

    @property
    def first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def rows(self, num_rows: int) -> range:
        """Give this rank's share of rows that are numbered over all of them."""
        if num_rows % self.size:
            raise ConfigError(
                f"{num_rows} rows cannot be shared evenly by {self.size} processes; make "
                f"stream.batch_size a multiple of {self.size}"
            )
        share = num_rows // self.size
        return range(self.rank * share, (self.rank + 1) * share)


ALONE = Ranks()


@contextmanager
def started(device: str) -> Iterator[tuple[Ranks, torch.device]]:
    """Join the processes that torchrun started, on this one's device; alone without torchrun."""
    ranks = Ranks(*(int(os.environ.get(key, default)) for key, default in _VARIABLES))
    place = device_of(device, ranks)
    if ranks.size == 1:
        yield ranks, place
        return
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "nccl" if place.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    group = dist.group.WORLD
    try:
        yield ranks, place
    except RuntimeError as error:
        if re.search(r"Connection|NCCL|[Gg]loo|Broken pipe", str(error)):
            # What failed is still held by the frames it failed in, and holds the group. It must
            # not be the last to: it would then wait, with Python locked, for threads of the group
            # that wait for Python.
            traceback.clear_frames(error.__traceback__)
            raise ElmoreError(
                "another process of this training died; start all of them again with --resume"
            ) from error
        raise
    finally:
        dist.destroy_process_group()
        del group


_VARIABLES = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))


def device_of(name: str, ranks: Ranks = ALONE) -> torch.device:
    """Give the device of a process: `auto` is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{ranks.local}"
    match = re.fullmatch(r"cpu|cuda:(\d+)", name)
    if not match:
        raise ConfigError(f"unknown device {name!r}; use auto, cpu or cuda")
    if match[1] is not None and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} was asked for, and there is no CUDA GPU here; use cpu")
    if match[1] is not None and int(match[1]) >= torch.cuda.device_count():
        raise ConfigError(
            f"device {name!r} was asked for, and there are {torch.cuda.device_count()} CUDA GPUs "
            "here; start no more processes than there are GPUs"
        )
    return torch.device(name)


def sum_over(ranks: Ranks, values: Tensor) -> Tensor:
    """Add up what each process has."""
    if ranks.size > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def gathered(ranks: Ranks, rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put the rows of all processes together, in their order."""
    if ranks.size == 1:
        return rows
    result = {}
    for name, tensor in sorted(rows.items()):
        parts = [torch.empty_like(tensor) for _ in range(ranks.size)]
        dist.all_gather(parts, tensor.contiguous())
        result[name] = torch.cat(parts)
    return result


def own_rows(ranks: Ranks, rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take this process's share of rows that were gathered, by however many."""
    return {
        name: tensor[ranks.rows(len(tensor)).start : ranks.rows(len(tensor)).stop]
        for name, tensor in rows.items()
    }
