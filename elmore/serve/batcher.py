"""Concurrent requests, brought together for one worker thread.

Work of most kinds runs in batches: all that wait and are of one kind, the first come first, up to a
budget of tokens; before a lone one runs, others have a moment to join it. Work that flows need not
wait for a batch to end: it joins what is under way, which advances a little at a time, and each is
answered when it is done itself. Batches run between these turns.

The queue is bounded: who comes when it is full is told when to come again. Who went away is not
computed any more. The event loop never waits for the model. A worker that has died is not replaced:
who waits for it is told so, and so is whoever comes.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol

from elmore.serve.worker import WorkerDied, WorkerThread

_log = logging.getLogger(__name__)
_SHARE = 0.15  # of the time of a batch that the next may wait to be joined


class QueueFull(Exception):  # noqa: N818 -- it is an answer, not a fault
    """There is no room for this much more."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"come again in {seconds} s")
        self.seconds = seconds


class Batch(NamedTuple):
    """What is told of a finished batch, or of a turn of what flows."""

    tokens: int
    """Of all requests that were in it."""
    done: int
    """Tokens of those that it finished."""
    seconds: float


class Worker(Protocol):
    """What does the work. Only one thread calls it, but for `flows`."""

    def flows(self, kind: Hashable) -> bool:
        """Say whether work of this kind flows."""
        ...

    def run(self, kind: Hashable, works: Sequence[Any]) -> Sequence[Any]:
        """Do all the work of one kind that is in a batch; one result for each, in order."""
        ...

    def join(self, works: Mapping[int, Any]) -> None:
        """Let numbered work flow with what is under way."""
        ...

    def advance(self) -> Mapping[int, Any]:
        """Go on a little; give the results (or the exceptions) of what is done by now."""
        ...

    def leave(self, numbers: Sequence[int]) -> None:
        """Forget work, where it is under way."""
        ...


class _Job(NamedTuple):
    kind: Hashable
    work: Any
    tokens: int
    result: asyncio.Future


def _fail(jobs: Iterable[_Job], error: Exception) -> None:
    """Raise an error to all who still wait for these jobs."""
    for job in jobs:
        if not job.result.done():
            job.result.set_exception(error)


class Batcher:
    """One queue, one worker.

    `patience` is how long, in seconds, a request waits for another to join its batch; `room` how
    many tokens may be in the queue; `token_budget` how many in a batch, or under way where they
    flow. It is used as `async with`: leaving it finishes what was accepted, but does not wait for
    a worker that has been at one call for more than `hang_seconds`, as `clock` tells them.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        token_budget: int = 4096,
        room: int = 32768,
        patience: float = 0.004,
        told: Callable[[Batch], None] = lambda batch: None,
        hang_seconds: float = 120,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.token_budget, self.room, self.patience = token_budget, room, patience
        self.hang_seconds = hang_seconds
        self._died: WorkerDied | None = None
        self._worker, self._told = worker, told
        self._queue: deque[_Job] = deque()
        self._flowing: dict[int, _Job] = {}
        self._numbers = count()
        self._arrived = asyncio.Event()
        self._closing = False
        self._last = Batch(0, 0, 0.0)  # of those that do not flow
        self._rate = 1000.0  # tokens a second, as it was of late
        self._clock = clock

    @property
    def waiting(self) -> int:
        """How many tokens are in the queue."""
        return sum(job.tokens for job in self._queue if not job.result.done())

    @property
    def died(self) -> WorkerDied | None:
        """What the worker has died of, if it has."""
        if self._died is None and not self._closing and not self._thread.alive:
            self._give_up(WorkerDied("its thread is gone"))
        return self._died

    @property
    def busy(self) -> bool:
        """Whether the worker is at a call."""
        return self._thread.busy

    @property
    def busy_seconds(self) -> float:
        """How long the worker has been at its call."""
        return self._thread.busy_seconds

    async def __aenter__(self) -> "Batcher":
        self._thread = WorkerThread(clock=self._clock)
        self._task = asyncio.create_task(self._work_until_the_end())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        while self._thread.alive and not self._task.done():
            left = self.hang_seconds - self.busy_seconds
            if left <= 0:
                break
            await asyncio.wait({self._task}, timeout=left)
        self._task.cancel()
        await asyncio.wait({self._task})
        self._thread.close()

    async def run(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 -- whatever it returns
        """Run something else in the thread of the worker, between its work."""
        try:
            return await self._thread.run(call)
        except WorkerDied as died:
            self._give_up(died)
            raise

    async def submit(self, kind: Hashable, work: Any, tokens: int) -> Any:  # noqa: ANN401
        """Give the result of the work, or raise what it raised; cancelled, it is left undone."""
        if self.died is not None:
            raise self.died
        waiting = self.waiting
        if self._closing or (waiting and waiting + tokens > self.room):
            raise QueueFull(min(60, 1 + int(waiting / self._rate)))
        result = asyncio.get_running_loop().create_future()
        self._queue.append(_Job(kind, work, tokens, result))
        self._arrived.set()
        return await result

    async def _work_until_the_end(self) -> None:
        try:
            await self._work()
        except WorkerDied as died:
            self._give_up(died)
        except Exception as error:
            died = WorkerDied(type(error).__name__)
            died.__cause__ = error
            self._give_up(died)

    def _give_up(self, died: WorkerDied) -> None:
        """Tell all who wait that nobody works any more."""
        if self._died is None:
            self._died = died
            _log.error("the worker has died", exc_info=died.__cause__ or died)
        _fail((*self._queue, *self._flowing.values()), died)
        self._queue.clear()
        self._flowing.clear()

    async def _work(self) -> None:
        idle = True
        while self._queue or self._flowing or not self._closing:
            if not self._queue and not self._flowing:
                self._arrived.clear()
                await self._arrived.wait()
                idle = True
            await self._flow()
            if self._queue and not self._flowing and not self._worker.flows(self._queue[0].kind):
                await self._give_company(self.token_budget if idle else self._last.tokens)
            idle = not await self._batch() and idle

    async def _give_company(self, expected: int) -> None:
        """Wait while more comes: who was answered together asks again together.

        Not for more than is expected, not for long beside the work of the batch before, and not
        while something could flow.
        """
        end = time.monotonic() + max(self.patience, _SHARE * self._last.seconds)
        while not self._closing and self.waiting < expected:
            if self._worker.flows(self._queue[-1].kind):
                return
            self._arrived.clear()
            left = min(self.patience, end - time.monotonic())
            try:
                await asyncio.wait_for(self._arrived.wait(), max(0, left))
            except TimeoutError:
                return

    def _take(self, wanted: Callable[[Hashable], bool], held: int = 0) -> list[_Job]:
        """Take what is wanted, the first come first, until the budget is full."""
        taken: list[_Job] = []
        left: deque[_Job] = deque()
        full = False
        for job in self._queue:
            if job.result.done():
                continue
            if full or not wanted(job.kind):
                left.append(job)
            elif held and held + job.tokens > self.token_budget:
                full = True
                left.append(job)
            else:
                taken.append(job)
                held += job.tokens
        self._queue = left
        return taken

    async def _batch(self) -> bool:
        """Run a batch of the kind of the first that does not flow; say whether there was one."""
        kinds = (job.kind for job in self._queue if not self._worker.flows(job.kind))
        first = next(kinds, None)
        batch = dict(enumerate(self._take(lambda kind: kind == first)))
        if not batch:
            return False
        works = [job.work for job in batch.values()]
        self._last = await self._answered(batch, lambda: self._outcomes(first, works))
        return True

    async def _flow(self) -> None:
        """Drop who went away from what flows, let who waits join it, and go on a little."""
        gone = [number for number, job in self._flowing.items() if job.result.done()]
        for number in gone:
            del self._flowing[number]
        held = sum(job.tokens for job in self._flowing.values())
        new = {next(self._numbers): job for job in self._take(self._worker.flows, held)}
        self._flowing |= new
        if gone or self._flowing:
            works = {number: job.work for number, job in self._flowing.items()}
            await self._answered(self._flowing, lambda: self._turn(works, list(new), gone))

    async def _answered(
        self, jobs: dict[int, _Job], work: Callable[[], Mapping[int, Any]]
    ) -> Batch:
        """Do work in the thread, and take the jobs out that it has done."""
        start = time.monotonic()
        tokens = sum(job.tokens for job in jobs.values())
        try:
            outcomes = await self._thread.run(work)
        except WorkerDied as died:
            _fail(jobs.values(), died)
            raise
        seconds = time.monotonic() - start
        done = [(jobs.pop(number), outcome) for number, outcome in outcomes.items()]
        batch = Batch(tokens, sum(job.tokens for job, _ in done), seconds)
        self._rate += min(1, seconds) * (batch.done / max(seconds, 1e-3) - self._rate)
        for job, outcome in done:
            if isinstance(outcome, Exception):
                _fail([job], outcome)
            elif not job.result.done():
                job.result.set_result(outcome)
        self._told(batch)
        return batch

    # What follows runs in the thread.

    def _outcomes(self, kind: Hashable, works: list[Any]) -> dict[int, Any]:
        """Run the batch; where it fails, each alone, so that only the culprit is told."""
        try:
            return dict(enumerate(self._worker.run(kind, works)))
        except Exception as error:
            if len(works) == 1:
                return {0: error}
            return {i: self._outcomes(kind, [work])[0] for i, work in enumerate(works)}

    def _turn(self, works: dict[int, Any], new: list[int], gone: list[int]) -> Mapping[int, Any]:
        """Go on with all that flows; where that fails, with each alone."""
        try:
            self._worker.leave(gone)
            self._worker.join({number: works[number] for number in new})
            return self._worker.advance()
        except Exception:
            self._worker.leave(list(works))
            return {number: self._alone(number, work) for number, work in works.items()}

    def _alone(self, number: int, work: Any) -> Any:  # noqa: ANN401
        try:
            self._worker.join({number: work})
            while not (done := self._worker.advance()):
                pass
            return done[number]
        except Exception as error:
            self._worker.leave([number])
            return error
