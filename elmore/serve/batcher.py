"""Concurrent requests, gathered into batches for one worker thread.

A request waits in a queue until the worker is free. Then all that wait and are of one kind go into
one batch, the first come first, up to a budget of tokens; before it runs, others have a moment to
join it. The queue is bounded: who comes when it is full is told when to come again. Who went away
is not computed any more. The event loop never waits for the model.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

Run = Callable[[Hashable, Sequence[Any]], Sequence[Any]]
"""Does all the work of one kind that is in a batch; one result for each, in order."""

_SHARE = 0.15  # of the time of a batch that the next may wait to be joined


class QueueFull(Exception):  # noqa: N818 -- it is an answer, not a fault
    """There is no room for this much more."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"come again in {seconds} s")
        self.seconds = seconds


class Batch(NamedTuple):
    """What is told of a finished batch."""

    requests: int
    tokens: int
    seconds: float


class _Job(NamedTuple):
    kind: Hashable
    work: Any
    tokens: int
    result: asyncio.Future


class Batcher:
    """One queue, one worker.

    `patience` is how long, in seconds, a request waits for another to join it; `room` how many
    tokens may be in the queue. It is used as `async with`: leaving it finishes what was accepted.
    """

    def __init__(
        self,
        run: Run,
        *,
        token_budget: int = 4096,
        room: int = 32768,
        patience: float = 0.004,
        told: Callable[[Batch], None] = lambda batch: None,
    ) -> None:
        self.token_budget, self.room, self.patience = token_budget, room, patience
        self._run, self._told = run, told
        self._queue: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._last = Batch(0, 0, 0.0)
        self._rate = 1000.0  # tokens a second, as it was of late
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    @property
    def waiting(self) -> int:
        """How many tokens are in the queue."""
        return sum(job.tokens for job in self._queue if not job.result.done())

    async def __aenter__(self) -> "Batcher":
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        await self._worker
        self._thread.shutdown()

    async def submit(self, kind: Hashable, work: Any, tokens: int) -> Any:  # noqa: ANN401
        """Give the result of the work, or raise what it raised; cancelled, it is left undone."""
        waiting = self.waiting
        if self._closing or (waiting and waiting + tokens > self.room):
            raise QueueFull(min(60, 1 + int(waiting / self._rate)))
        result = asyncio.get_running_loop().create_future()
        self._queue.append(_Job(kind, work, tokens, result))
        self._arrived.set()
        return await result

    async def _work(self) -> None:
        idle = True
        while self._queue or not self._closing:
            if not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
                idle = True
            await self._give_company(self.token_budget if idle else self._last.tokens)
            if batch := self._take():
                await self._finish(batch)
                idle = False

    async def _give_company(self, expected: int) -> None:
        """Wait while more comes: who was answered together asks again together.

        Not for more than is expected, and not for long beside the work of the batch before.
        """
        end = time.monotonic() + max(self.patience, _SHARE * self._last.seconds)
        while not self._closing and self.waiting < expected:
            self._arrived.clear()
            left = min(self.patience, end - time.monotonic())
            try:
                await asyncio.wait_for(self._arrived.wait(), max(0, left))
            except TimeoutError:
                return

    def _take(self) -> list[_Job]:
        """Take what is of the kind of the first, up to the budget; drop who went away."""
        batch: list[_Job] = []
        left: deque[_Job] = deque()
        tokens = 0
        for job in self._queue:
            if job.result.done():
                continue
            fits = not batch or tokens + job.tokens <= self.token_budget
            if fits and (not batch or job.kind == batch[0].kind):
                batch.append(job)
                tokens += job.tokens
            else:
                left.append(job)
        self._queue = left
        return batch

    async def _finish(self, batch: list[_Job]) -> None:
        start = time.monotonic()
        loop = asyncio.get_running_loop()
        works = [job.work for job in batch]
        outcomes = await loop.run_in_executor(self._thread, self._outcomes, batch[0].kind, works)
        seconds = time.monotonic() - start
        tokens = sum(job.tokens for job in batch)
        self._rate += 0.2 * (tokens / max(seconds, 1e-3) - self._rate)
        self._last = Batch(len(batch), tokens, seconds)
        self._told(self._last)
        for job, outcome in zip(batch, outcomes, strict=True):
            if job.result.done():
                continue
            if isinstance(outcome, Exception):
                job.result.set_exception(outcome)
            else:
                job.result.set_result(outcome)

    def _outcomes(self, kind: Hashable, works: list[Any]) -> list[Any]:
        """Run the batch; where it fails, each alone, so that only the culprit is told."""
        try:
            return list(self._run(kind, works))
        except Exception as error:
            if len(works) == 1:
                return [error]
            return [outcome for work in works for outcome in self._outcomes(kind, [work])]
