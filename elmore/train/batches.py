"""Batches made ahead of time, in a thread of their own, and moved to where they are used."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

DEPTH = 4  # batches that wait: enough to hide a slow one, little memory

Item = TypeVar("Item")


def ahead(
    make: Callable[[int], Item], numbers: range, *, pinned: torch.device | None = None
) -> Iterator[Item]:
    """Give `make(number)` for each number, made while the ones before are in use.

    For a GPU they wait in pinned memory, from which they can be copied while it works.
    """
    ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(DEPTH)
    stopped = threading.Event()

    def put(item: Item | None, error: BaseException | None) -> None:
        while not stopped.is_set():
            try:
                ready.put((item, error), timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for number in numbers:
                item = make(number)
                put(_pin(item) if pinned is not None and pinned.type == "cuda" else item, None)
                if stopped.is_set():
                    return
        except BaseException as error:  # raised again where the batch is awaited
            put(None, error)

    thread = threading.Thread(target=work, daemon=True, name="elmore-batches")
    thread.start()
    try:
        for _ in numbers:
            item, error = ready.get()
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()


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
