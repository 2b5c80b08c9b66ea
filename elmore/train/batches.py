"""Batches made ahead of time, in threads of their own, and moved to where they are used."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

DEPTH = 4  # batches that wait: enough to hide a slow one, little memory
_THREADS = 3  # a GPU is quicker than one of them; a CPU has better things to do

Item = TypeVar("Item")


def ahead(
    make: Callable[[int], Item],
    numbers: range,
    *,
    pinned: torch.device | None = None,
    num_threads: int | None = None,
) -> Iterator[Item]:
    """Give `make(number)` for each number in order, made while the ones before are in use.

    For a GPU they wait in pinned memory, from which they can be copied while it works, and several
    are made at once unless `num_threads` says how many: `make` must bear that.
    """
    pins = pinned is not None and pinned.type == "cuda"

    def made(number: int) -> Item:
        item = make(number)
        return _pin(item) if pins else item

    waiting: deque[Future[Item]] = deque()
    pool = ThreadPoolExecutor(num_threads or (_THREADS if pins else 1), "elmore-batches")
    try:
        for number in numbers:
            waiting.append(pool.submit(made, number))
            if len(waiting) > DEPTH:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def moved(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 -- whatever holds tensors
    """Put every tensor of a batch on a device."""
    return _each(batch, lambda tensor: tensor.to(device, non_blocking=True))


def _pin(batch: Any) -> Any:  # noqa: ANN401
    return _each(batch, lambda tensor: tensor.pin_memory())


def _each(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:  # noqa: ANN401
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_each(item, change) for item in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_each(item, change) for item in batch)
    if isinstance(batch, dict):
        return {key: _each(item, change) for key, item in batch.items()}
    return batch
