"""Check whether the worker and its device still respond."""

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple

from elmore.serve.batcher import Batcher
from elmore.serve.worker import WorkerDied

_PROBE_SECONDS = 1.0  # time for the device of an idle worker to respond


class HealthStatus(NamedTuple):
    """The state of worker and device."""

    worker: Literal["idle", "busy", "hung", "dead"]
    busy_seconds: float
    device: Literal["ok", "failed", "unknown"]
    problem: str | None
    """What is wrong, in one sentence, or None."""


def probe_device(device: str) -> None:
    """Run a small computation on a device, and wait for its result."""
    if device != "cpu":
        import torch

        torch.ones(1, device=device).sum().item()


async def check_health(batcher: Batcher, device: str, probe: Callable[[], None]) -> HealthStatus:
    """Return the state of the worker; if it is idle, run the probe of its device first."""
    if not batcher.busy and batcher.died is None:
        try:
            await _run_probe(batcher, probe)
        except WorkerDied:
            pass  # reported below
        except Exception as error:
            kind = type(error).__name__
            problem = f"{device} has failed ({kind}); restart the server"
            return HealthStatus("idle", 0.0, "failed", problem)
    if batcher.died is not None:
        problem = f"the worker has died ({batcher.died}); restart the server"
        return HealthStatus("dead", 0.0, "unknown", problem)
    seconds = batcher.busy_seconds
    if seconds > batcher.hang_seconds:
        problem = (
            f"the worker has been in one call on {device} for {seconds:.0f} s, more than "
            f"{batcher.hang_seconds:g}; restart the server if this continues"
        )
        return HealthStatus("hung", seconds, "unknown", problem)
    return HealthStatus("busy" if batcher.busy else "idle", seconds, "ok", None)


async def _run_probe(batcher: Batcher, probe: Callable[[], None]) -> None:
    """Run the probe; if it does not return, the worker counts as busy, and later as hung."""
    probing = asyncio.ensure_future(batcher.run(probe))
    probing.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark as seen
    await asyncio.wait({probing}, timeout=_PROBE_SECONDS)
    if probing.done():
        probing.result()
