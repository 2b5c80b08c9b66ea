"""Prepare batches in background threads and copy them to the device."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

DEPTH = 4  # batches in the queue: enough to hide a slow one, little memory
_GPU_THREADS = 3  # one thread cannot keep a GPU busy; on a CPU the model needs the cores

Item = TypeVar("Item")


def prefetch(
    make: Callable[[int], Item],
    numbers: range,
    *,
    device: torch.device | None = None,
    num_threads: int | None = None,
) -> Iterator[Item]:
    """Yield `make(number)` for each number in order, prepared while earlier items are in use.

    For a CUDA device the tensors are pinned, so that copies overlap with computation, and several
    threads call `make` concurrently unless `num_threads` is given.
    """
    pin = device is not None and device.type == "cuda"

    def make_item(number: int) -> Item:
        item = make(number)
        return map_tensors(item, Tensor.pin_memory) if pin else item

    queue: deque[Future[Item]] = deque()
    pool = ThreadPoolExecutor(num_threads or (_GPU_THREADS if pin else 1), "elmore-batches")
    try:
        for number in numbers:
            queue.append(pool.submit(make_item, number))
            if len(queue) > DEPTH:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def to_device(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 -- any nested container
    """Copy every tensor of a batch to a device, without waiting for the copy."""
    return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))


def map_tensors(batch: Any, function: Callable[[Tensor], Tensor]) -> Any:  # noqa: ANN401
    """Apply a function to every tensor of nested lists, tuples and dictionaries.

    A list that begins with a string holds tokens, which may be many, and is returned as it is.
    """
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, list) and batch and isinstance(batch[0], str):
        return batch
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(item, function) for item in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_tensors(item, function) for item in batch)
    if isinstance(batch, dict):
        return {key: map_tensors(item, function) for key, item in batch.items()}
    return batch
