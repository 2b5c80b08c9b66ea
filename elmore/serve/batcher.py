"""Batch concurrent requests for one worker thread.

Work runs in one of three ways, by its kind. Kinds that support batching run in batches: all waiting
requests of one kind, in order of arrival, up to a token budget, and as many as take little time; a
single request waits a moment for others. Kinds that support continuous batching join a running
batch, which advances a few steps at a time, and each request is answered as soon as it is complete.
All others run one by one. Batches and single requests run between the steps of the continuous
batch, one of them at a time; the steps after a batch get as much time as it took.

The queue is bounded: when it is full, a request is rejected with a time to retry. Requests whose
client has disconnected are dropped. The event loop never waits for the model. While the worker is
hung, requests are refused. A worker that has died is not replaced: all waiting and all later
requests fail.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol

from elmore.serve.worker import WorkerDied, WorkerHung, WorkerThread

_log = logging.getLogger(__name__)
_WAIT_FRACTION = 0.15  # of the duration of the last batch: how long the next may wait
_MIN_BATCH_TOKENS = 512
_BATCH_SECONDS = 0.1  # that a batch of more tokens may take
_MIN_RATE = 1.0  # tokens per second: a long step that completes nothing has a rate of 0


class QueueFull(Exception):  # noqa: N818 -- a response, not a fault
    """The queue has no room for this request."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"retry in {seconds} s")
        self.seconds = seconds


class Batch(NamedTuple):
    """Statistics of a finished batch, or of one step of the continuous batch."""

    tokens: int
    """Of all requests in the batch."""
    done: int
    """Tokens of the requests that are complete."""
    seconds: float


class Worker(Protocol):
    """Does the work. Only the worker thread calls it, except the two questions about a kind."""

    def supports_batching(self, kind: Hashable) -> bool:
        """Return whether work of this kind takes less time in a batch."""
        ...

    def supports_continuous_batching(self, kind: Hashable) -> bool:
        """Return whether work of this kind joins the continuous batch."""
        ...

    def run(self, kind: Hashable, works: Sequence[Any]) -> Sequence[Any]:
        """Run a batch of work of one kind; return one result for each, in order."""
        ...

    def add(self, works: Mapping[int, Any]) -> None:
        """Add numbered work to the continuous batch."""
        ...

    def step(self) -> Mapping[int, Any]:
        """Run a few steps; return the results (or exceptions) of the work that is complete."""
        ...

    def abort(self, numbers: Sequence[int]) -> None:
        """Remove work from the continuous batch, if it is in it."""
        ...


class _Job(NamedTuple):
    kind: Hashable
    work: Any
    tokens: int
    result: asyncio.Future


def _fail(jobs: Iterable[_Job], error: Exception) -> None:
    """Fail the jobs that are not done."""
    for job in jobs:
        if not job.result.done():
            job.result.set_exception(error)


class Batcher:
    """One queue, one worker thread.

    `token_budget` bounds the tokens of a batch and of the continuous batch, `max_queue_tokens`
    those of the queue. A request waits up to `max_wait_s` seconds for others to join its batch.
    `on_batch` is called with the statistics of each batch. A worker that has been in one call for
    more than `hang_seconds`, measured by `clock`, is hung. Use it as `async with`: on exit it
    finishes the accepted requests, but does not wait for a hung worker.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        token_budget: int = 4096,
        max_queue_tokens: int = 32768,
        max_wait_s: float = 0.004,
        on_batch: Callable[[Batch], None] = lambda batch: None,
        hang_seconds: float = 120,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.token_budget, self.max_queue_tokens = token_budget, max_queue_tokens
        self.max_wait_s = max_wait_s
        self.hang_seconds = hang_seconds
        self._died: WorkerDied | None = None
        self._worker, self._on_batch = worker, on_batch
        self._queue: deque[_Job] = deque()
        self._running: dict[int, _Job] = {}
        self._numbers = count()
        self._arrived = asyncio.Event()
        self._closing = False
        self._last = Batch(0, 0, 0.0)  # the continuous batch does not count
        self._rate = 1000.0  # tokens per second, moving average
        self._batch_rate = 0.0  # of the last batch
        self._share = 0.0  # seconds that the continuous batch gets now
        self._clock = clock

    @property
    def waiting(self) -> int:
        """Number of tokens in the queue."""
        return sum(job.tokens for job in self._queue if not job.result.done())

    @property
    def died(self) -> WorkerDied | None:
        """Why the worker died, or None."""
        if self._died is None and not self._closing and not self._thread.alive:
            self._fail_all(WorkerDied("its thread has ended"))
        return self._died

    @property
    def busy(self) -> bool:
        """Whether the worker is in a call."""
        return self._thread.busy

    @property
    def busy_seconds(self) -> float:
        """How long the worker has been in its current call."""
        return self._thread.busy_seconds

    async def __aenter__(self) -> "Batcher":
        self._thread = WorkerThread(clock=self._clock)
        self._task = asyncio.create_task(self._run_loop())
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
        """Run a function in the worker thread, between batches."""
        try:
            return await self._thread.run(call)
        except WorkerDied as died:
            self._fail_all(died)
            raise

    async def submit(self, kind: Hashable, work: Any, tokens: int) -> Any:  # noqa: ANN401
        """Queue work and return its result, or raise its exception; if cancelled, drop the work."""
        (result,) = await self.submit_parts(kind, [(work, tokens)])
        return result

    async def submit_parts(self, kind: Hashable, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """Queue the parts of a request, with their tokens; return their results, in order.

        If one fails, raise its exception and drop the others; if cancelled, drop all.
        """
        if self.died is not None:
            raise self.died
        seconds = self.busy_seconds
        if seconds > self.hang_seconds:
            raise WorkerHung(
                f"the worker has been in one call for {seconds:.0f} s, more than "
                f"{self.hang_seconds:g}"
            )
        waiting, tokens = self.waiting, sum(tokens for _, tokens in parts)
        if self._closing or (waiting and waiting + tokens > self.max_queue_tokens):
            raise QueueFull(min(60, 1 + int(waiting / max(self._rate, _MIN_RATE))))
        loop = asyncio.get_running_loop()
        jobs = [_Job(kind, *part, loop.create_future()) for part in parts]
        self._queue.extend(jobs)
        self._arrived.set()
        try:
            return await asyncio.gather(*(job.result for job in jobs))
        finally:
            for job in jobs:
                job.result.cancel()

    async def _run_loop(self) -> None:
        try:
            await self._work()
        except WorkerDied as died:
            self._fail_all(died)
        except Exception as error:
            died = WorkerDied(type(error).__name__)
            died.__cause__ = error
            self._fail_all(died)

    def _fail_all(self, died: WorkerDied) -> None:
        """Fail all jobs: the worker is dead."""
        if self._died is None:
            self._died = died
            _log.error("the worker has died", exc_info=died.__cause__ or died)
        _fail((*self._queue, *self._running.values()), died)
        self._queue.clear()
        self._running.clear()

    async def _work(self) -> None:
        idle = True
        while self._queue or self._running or not self._closing:
            if not self._queue and not self._running:
                self._arrived.clear()
                await self._arrived.wait()
                idle = True
            spent = await self._continue_batch()
            while self._running and spent < self._share:
                spent += await self._continue_batch()
            if (
                self._queue
                and not self._running
                and self._worker.supports_batching(self._queue[0].kind)
            ):
                await self._wait_for_more(self._batch_budget if idle else self._last.tokens)
            idle = not await self._batch() and idle

    @property
    def _batch_budget(self) -> int:
        """Tokens of the next batch: a large one on a slow device would hold up everybody else."""
        tokens = max(_MIN_BATCH_TOKENS, int(self._batch_rate * _BATCH_SECONDS))
        return min(self.token_budget, tokens)

    async def _wait_for_more(self, expected: int) -> None:
        """Wait up to max(max_wait_s, 15 % of the last batch's duration) for more requests.

        Clients that were answered together send their next requests together, so these are batched
        again. Do not wait for more than `expected` tokens, nor while continuous work is waiting.
        """
        end = time.monotonic() + max(self.max_wait_s, _WAIT_FRACTION * self._last.seconds)
        while not self._closing and self.waiting < expected:
            if self._worker.supports_continuous_batching(self._queue[-1].kind):
                return
            self._arrived.clear()
            left = min(self.max_wait_s, end - time.monotonic())
            try:
                await asyncio.wait_for(self._arrived.wait(), max(0, left))
            except TimeoutError:
                return

    def _take(
        self,
        accepts: Callable[[Hashable], bool],
        budget: int,
        num_tokens: int = 0,
        *,
        max_jobs: int | None = None,
    ) -> list[_Job]:
        """Remove the wanted jobs from the queue, in order of arrival, up to a budget of tokens."""
        taken: list[_Job] = []
        left: deque[_Job] = deque()
        full = False
        for job in self._queue:
            if job.result.done():
                continue
            if full or not accepts(job.kind):
                left.append(job)
            elif len(taken) == max_jobs or (num_tokens and num_tokens + job.tokens > budget):
                full = True
                left.append(job)
            else:
                taken.append(job)
                num_tokens += job.tokens
        self._queue = left
        return taken

    async def _batch(self) -> bool:
        """Run a batch, or a single job, of the first kind that is not continuous, if there is one.

        Return whether there was one.
        """
        kinds = (
            job.kind
            for job in self._queue
            if not self._worker.supports_continuous_batching(job.kind)
        )
        first = next(kinds, None)
        is_batch = self._worker.supports_batching(first)
        taken = self._take(
            lambda kind: kind == first, self._batch_budget, max_jobs=None if is_batch else 1
        )
        self._share = 0.0
        if not taken:
            return False
        batch, works = dict(enumerate(taken)), [job.work for job in taken]
        self._last = await self._run_and_resolve(batch, lambda: self._run_batch(first, works))
        if is_batch:
            self._share = self._last.seconds
            self._batch_rate = self._last.tokens / max(self._share, 1e-3)
        return True

    async def _continue_batch(self) -> float:
        """Remove cancelled jobs from the continuous batch, add waiting ones, run a few steps.

        Return how many seconds that took.
        """
        canceled = [number for number, job in self._running.items() if job.result.done()]
        for number in canceled:
            del self._running[number]
        num_tokens = sum(job.tokens for job in self._running.values())
        new = {
            next(self._numbers): job
            for job in self._take(
                self._worker.supports_continuous_batching, self.token_budget, num_tokens
            )
        }
        self._running |= new
        if not canceled and not self._running:
            return 0.0
        works = {number: job.work for number, job in self._running.items()}
        step = await self._run_and_resolve(
            self._running, lambda: self._step_all(works, list(new), canceled)
        )
        return step.seconds

    async def _run_and_resolve(
        self, jobs: dict[int, _Job], work: Callable[[], Mapping[int, Any]]
    ) -> Batch:
        """Run a function in the worker thread, and resolve the jobs that it completed."""
        start = self._clock()
        tokens = sum(job.tokens for job in jobs.values())
        try:
            outcomes = await self._thread.run(work)
        except WorkerDied as died:
            _fail(jobs.values(), died)
            raise
        seconds = self._clock() - start
        done = [(jobs.pop(number), outcome) for number, outcome in outcomes.items()]
        batch = Batch(tokens, sum(job.tokens for job, _ in done), seconds)
        self._rate += min(1, seconds) * (batch.done / max(seconds, 1e-3) - self._rate)
        for job, outcome in done:
            if isinstance(outcome, Exception):
                _fail([job], outcome)
            elif not job.result.done():
                job.result.set_result(outcome)
        self._on_batch(batch)
        return batch

    # The methods below run in the worker thread.

    def _run_batch(self, kind: Hashable, works: list[Any]) -> dict[int, Any]:
        """Run a batch; if it fails, run each job alone, so that only the faulty one fails."""
        try:
            return dict(enumerate(self._worker.run(kind, works)))
        except Exception as error:
            if len(works) == 1:
                return {0: error}
            return {i: self._run_batch(kind, [work])[0] for i, work in enumerate(works)}

    def _step_all(
        self, works: dict[int, Any], new: list[int], canceled: list[int]
    ) -> Mapping[int, Any]:
        """Advance the continuous batch; if it fails, run each job alone."""
        try:
            self._worker.abort(canceled)
            self._worker.add({number: works[number] for number in new})
            return self._worker.step()
        except Exception:
            self._worker.abort(list(works))
            return {number: self._run_alone(number, work) for number, work in works.items()}

    def _run_alone(self, number: int, work: Any) -> Any:  # noqa: ANN401
        try:
            self._worker.add({number: work})
            while not (done := self._worker.step()):
                pass
            return done[number]
        except Exception as error:
            self._worker.abort([number])
            return error
