"""Whether the worker and its device still do anything."""

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

from elmore.serve.batcher import Batcher
from elmore.serve.worker import WorkerDied

_PROBE_SECONDS = 1.0  # for the device of an idle worker to answer


class Condition(NamedTuple):
    """The state of worker and device."""

    worker: Literal["idle", "busy", "hung", "dead"]
    busy_seconds: float
    device: Literal["ok", "failed", "unknown"]
    problem: str | None
    """What is wrong, in one sentence; None if nothing is."""


def touch(device: torch.device | str) -> None:
    """Let a device compute something, and wait for it."""
    torch.ones(1, device=device).sum().item()


async def examine(batcher: Batcher, device: str, probe: Callable[[], None]) -> Condition:
    """Look at the worker; if it is idle, let it run the probe of its device."""
    if not batcher.busy and batcher.died is None:
        try:
            await _wait_a_little(batcher, probe)
        except WorkerDied:
            pass  # which is told below
        except Exception as error:
            kind = type(error).__name__
            problem = f"{device} does not compute any more ({kind}); restart the server"
            return Condition("idle", 0.0, "failed", problem)
    if batcher.died is not None:
        problem = f"the worker has died ({batcher.died}); restart the server"
        return Condition("dead", 0.0, "unknown", problem)
    seconds = batcher.busy_seconds
    if seconds > batcher.hang_seconds:
        problem = (
            f"the worker has been at one piece of work on {device} for {seconds:.0f} s, more than "
            f"{batcher.hang_seconds:g}; restart the server if this goes on"
        )
        return Condition("hung", seconds, "unknown", problem)
    return Condition("busy" if batcher.busy else "idle", seconds, "ok", None)


async def _wait_a_little(batcher: Batcher, probe: Callable[[], None]) -> None:
    """Run the probe; one that does not come back makes the worker busy, and in time hung."""
    probing = asyncio.ensure_future(batcher.run(probe))
    probing.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is seen
    await asyncio.wait({probing}, timeout=_PROBE_SECONDS)
    if probing.done():
        probing.result()
