"""The queue: what is gathered, what is refused, what is dropped, what is finished."""

import asyncio
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.serve.batcher import Batcher, QueueFull
from elmore.serve.worker import WorkerHung
from tests.support.sweeps import pick


class Worker:
    """Doubles numbers; keeps what came together, and may be held up.

    What is of the kind "flow" is done after as many turns as it says; "alone" has no batches.
    """

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.gate = threading.Event()
        if not held:
            self.gate.set()
        self.under_way: dict[int, list[int]] = {}
        self.turns: list[list[int]] = []

    def supports_continuous_batching(self, kind):
        return kind == "flow"

    def supports_batching(self, kind):
        return kind not in ("flow", "alone")

    def add(self, works):
        if any(work < 0 for work in works.values()):
            raise ValueError("a negative number")
        self.under_way |= {number: [work, work] for number, work in works.items()}

    def abort(self, numbers):
        for number in numbers:
            self.under_way.pop(number, None)

    def step(self):
        self.turns.append([work for work, _ in self.under_way.values()])
        assert self.gate.wait(30)
        if len(self.under_way) > 1 and any(work == 13 for work, _ in self.under_way.values()):
            raise ValueError("thirteen is read alone")
        for turns in self.under_way.values():
            turns[1] -= 1
        done = {number: 2 * work for number, (work, left) in self.under_way.items() if left == 0}
        self.abort(done)
        return done

    def run(self, kind, works):
        self.batches.append((kind, list(works)))
        assert self.gate.wait(30)
        if any(work < 0 for work in works):
            raise ValueError("a negative number")
        return [2 * work for work in works]


async def submit_all(batcher, works, kind="a"):
    jobs = [asyncio.ensure_future(batcher.submit(kind, work, abs(work))) for work in works]
    await asyncio.sleep(0)
    return jobs


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 40)), max_size=30))
@settings(max_examples=pick(8, 40))
def test_each_request_gets_its_own_result_and_no_batch_exceeds_the_budget(asked):
    worker = Worker()

    async def run():
        async with Batcher(worker, token_budget=50, max_wait_s=0.001) as batcher:
            return await asyncio.gather(*(batcher.submit(kind, n, n) for kind, n in asked))

    assert asyncio.run(run()) == [2 * number for _, number in asked]
    for kind, works in worker.batches:
        assert sum(works) <= 50
        assert all((kind, work) in asked for work in works)
    assert sum(len(works) for _, works in worker.batches) == len(asked)


def test_requests_that_wait_for_a_busy_worker_run_together_in_order():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, token_budget=100, max_wait_s=0) as batcher:
            first = await submit_all(batcher, [1])
            while not worker.batches:
                await asyncio.sleep(0.001)
            others = await submit_all(batcher, [5, 6, 7])
            worker.gate.set()
            return await asyncio.gather(*first, *others)

    assert asyncio.run(run()) == [2, 10, 12, 14]
    assert worker.batches == [("a", [1]), ("a", [5, 6, 7])]


class HeldAfterFirst(Worker):
    """All calls after the first are held up."""

    def run(self, kind, works):
        done = super().run(kind, works)
        if len(self.batches) == 1:
            self.gate.clear()
        return done


def test_a_kind_without_batches_runs_and_is_answered_one_by_one_without_waiting_for_more():
    worker = HeldAfterFirst()

    async def run():
        async with Batcher(worker, token_budget=100, max_wait_s=60) as batcher:
            first, second = await submit_all(batcher, [5, 6], "alone")
            assert await asyncio.wait_for(first, 30) == 10
            assert not second.done()
            worker.gate.set()
            return await second

    assert asyncio.run(run()) == 12
    assert worker.batches == [("alone", [5]), ("alone", [6])]


def test_the_loop_is_free_while_the_worker_works():
    async def run():
        worker = Worker(held=True)  # to be let go by the loop, which has to be free for it
        async with Batcher(worker, max_wait_s=0) as batcher:
            (job,) = await submit_all(batcher, [1])
            while not worker.batches:
                await asyncio.sleep(0.001)
            assert not job.done()
            worker.gate.set()
            return await job

    assert asyncio.run(run()) == 2


def test_a_full_queue_refuses_and_says_when_to_retry():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, token_budget=10, max_queue_tokens=20, max_wait_s=0) as batcher:
            first = await submit_all(batcher, [10])
            while not worker.batches:
                await asyncio.sleep(0.001)
            waiting = await submit_all(batcher, [10, 10])
            with pytest.raises(QueueFull) as refusal:
                await batcher.submit("a", 1, 1)
            assert 1 <= refusal.value.seconds <= 60
            worker.gate.set()
            return await asyncio.gather(*first, *waiting)

    assert asyncio.run(run()) == [20, 20, 20]


class LongStep(Worker):
    """Each step takes five seconds by its clock; all after the first are held up."""

    now = 0.0

    def step(self):
        self.now += 5
        done = super().step()
        if len(self.turns) == 1:
            self.gate.clear()
        return done


def test_a_full_queue_refuses_after_a_long_step_that_completed_nothing():
    worker = LongStep()

    async def run():
        limits = {"token_budget": 10, "max_queue_tokens": 20, "max_wait_s": 0}
        async with Batcher(worker, **limits, clock=lambda: worker.now) as batcher:
            jobs = await submit_all(batcher, [3], "flow")
            while len(worker.turns) < 2:
                await asyncio.sleep(0.001)
            jobs += await submit_all(batcher, [10, 10])
            with pytest.raises(QueueFull) as refusal:
                await batcher.submit("a", 1, 1)
            worker.gate.set()
            await asyncio.gather(*jobs)
            return refusal.value.seconds

    assert asyncio.run(run()) == 21  # a token a second, at worst


def test_a_hung_worker_refuses_at_once_and_recovers():
    worker = Worker(held=True)
    clock = [0.0]

    async def run():
        async with Batcher(
            worker, max_wait_s=0, hang_seconds=60, clock=lambda: clock[0]
        ) as batcher:
            first = await submit_all(batcher, [1])
            while not worker.batches:
                await asyncio.sleep(0.001)
            clock[0] = 60.0
            accepted = await submit_all(batcher, [2])
            clock[0] = 61.0
            with pytest.raises(WorkerHung, match="in one call for 61 s, more than 60"):
                await batcher.submit("a", 3, 3)
            worker.gate.set()
            await asyncio.gather(*first, *accepted)
            return await batcher.submit("a", 4, 4)

    assert asyncio.run(run()) == 8


def test_a_request_larger_than_the_queue_is_accepted_when_it_is_empty():
    async def run():
        async with Batcher(Worker(), token_budget=10, max_queue_tokens=20, max_wait_s=0) as batcher:
            return await batcher.submit("a", 50, 50)

    assert asyncio.run(run()) == 100


class Timed(Worker):
    """A batch and a step take so many seconds by its clock; `calls` says what ran when."""

    now = 0.0

    def __init__(self, *, batch: float, step: float) -> None:
        super().__init__(held=True)
        self.seconds = {"batch": batch, "step": step}
        self.calls: list[str] = []

    def run(self, kind, works):
        self._pass("batch")
        return super().run(kind, works)

    def step(self):
        self._pass("step")
        return super().step()

    def _pass(self, call):
        self.calls.append(call)
        self.now += self.seconds[call]


@pytest.mark.parametrize(
    ("seconds", "sizes"), [(10, [1, 5, 5, 5, 5]), (0.05, [1, 5, 10, 5]), (0, [1, 20])]
)
def test_a_batch_is_as_large_as_the_last_one_was_fast_and_not_too_small(seconds, sizes):
    worker = Timed(batch=seconds, step=0)

    async def run():
        async with Batcher(
            worker, token_budget=4000, max_wait_s=0, clock=lambda: worker.now
        ) as batcher:
            jobs = await submit_all(batcher, [100])
            while not worker.batches:
                await asyncio.sleep(0.001)
            jobs += await submit_all(batcher, [100] * (sum(sizes) - 1))
            worker.gate.set()
            await asyncio.gather(*jobs)

    asyncio.run(run())
    assert [len(works) for _, works in worker.batches] == sizes


def test_continuous_requests_get_as_much_time_as_batches():
    worker = Timed(batch=5, step=1)

    async def run():
        async with Batcher(
            worker, token_budget=512, max_wait_s=0, clock=lambda: worker.now
        ) as batcher:
            jobs = await submit_all(batcher, [12], "flow")
            await first_turn(worker)
            jobs += await submit_all(batcher, [300] * 3)
            worker.gate.set()
            await asyncio.gather(*jobs)

    asyncio.run(run())
    between = [len(steps) for steps in "".join(call[0] for call in worker.calls).split("b")]
    assert between == [1, 5, 5, 1]


def test_the_parts_of_a_request_run_in_batches_of_their_own_and_are_returned_in_order():
    worker = Worker()

    async def run():
        async with Batcher(worker, token_budget=10, max_wait_s=0) as batcher:
            return await batcher.submit_parts("a", [(3, 3), (9, 9), (1, 1), (0, 2)])

    assert asyncio.run(run()) == [6, 18, 2, 0]
    assert worker.batches == [("a", [3]), ("a", [9, 1]), ("a", [0])]


def test_a_request_in_parts_is_refused_or_dropped_as_a_whole():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, token_budget=10, max_queue_tokens=20, max_wait_s=0) as batcher:
            first = await submit_all(batcher, [1])
            while not worker.batches:
                await asyncio.sleep(0.001)
            failing = asyncio.ensure_future(batcher.submit_parts("a", [(-1, 1), (9, 10), (8, 5)]))
            await asyncio.sleep(0)
            with pytest.raises(QueueFull):
                await asyncio.wait_for(batcher.submit_parts("a", [(2, 3), (3, 3)]), 30)
            assert batcher.waiting == 16
            canceled = asyncio.ensure_future(batcher.submit_parts("a", [(4, 2), (5, 2)]))
            await asyncio.sleep(0)
            canceled.cancel()
            worker.gate.set()
            with pytest.raises(ValueError, match="negative"):
                await failing
            await asyncio.gather(*first)

    asyncio.run(run())
    # the part after the failed one may run before the request hears of it
    assert worker.batches == [("a", [1]), ("a", [-1]), ("a", [9])]


def test_a_disconnected_request_is_not_computed():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, max_wait_s=0) as batcher:
            first = await submit_all(batcher, [1])
            while not worker.batches:
                await asyncio.sleep(0.001)
            gone, there = await submit_all(batcher, [2, 3])
            gone.cancel()
            await asyncio.sleep(0)
            assert batcher.waiting == 3
            worker.gate.set()
            return await asyncio.gather(*first, there)

    assert asyncio.run(run()) == [2, 6]
    assert worker.batches == [("a", [1]), ("a", [3])]


def test_a_failed_request_does_not_affect_the_others():
    async def run():
        async with Batcher(Worker(), max_wait_s=0.01) as batcher:
            jobs = await submit_all(batcher, [4, -1, 5])
            return await asyncio.gather(*jobs, return_exceptions=True)

    good, bad, better = asyncio.run(run())
    assert (good, better) == (8, 10)
    assert isinstance(bad, ValueError)


def test_closing_finishes_accepted_requests_and_refuses_new_ones():
    worker = Worker(held=True)

    async def run():
        batcher = Batcher(worker, token_budget=3, max_wait_s=0)
        async with batcher:
            jobs = await submit_all(batcher, [1, 2, 3])
            threading.Timer(0.1, worker.gate.set).start()
        with pytest.raises(QueueFull):
            await batcher.submit("a", 1, 1)
        return [job.result() for job in jobs]

    assert asyncio.run(run()) == [2, 4, 6]


def test_a_single_request_waits_no_longer_than_max_wait_s():
    async def run():
        async with Batcher(Worker(), max_wait_s=0.05) as batcher:
            start = time.monotonic()
            await batcher.submit("a", 1, 1)
            return time.monotonic() - start

    assert 0.04 < asyncio.run(run()) < 5


async def first_turn(worker):
    while not worker.turns:
        await asyncio.sleep(0.001)


@given(st.lists(st.tuples(st.sampled_from(["a", "flow"]), st.integers(1, 40)), max_size=30))
@settings(max_examples=pick(8, 40))
def test_continuous_and_other_requests_run_side_by_side_within_the_budget(asked):
    worker = Worker()

    async def run():
        async with Batcher(worker, token_budget=50, max_wait_s=0.001) as batcher:
            return await asyncio.gather(*(batcher.submit(kind, n, n) for kind, n in asked))

    assert asyncio.run(run()) == [2 * number for _, number in asked]
    assert all(sum(works) <= 50 for works in worker.turns)
    assert not worker.under_way


def test_a_request_joins_the_running_batch_and_is_answered_before_its_end():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, max_wait_s=0) as batcher:
            (long,) = await submit_all(batcher, [500], "flow")
            await first_turn(worker)
            (short,) = await submit_all(batcher, [2], "flow")
            (batch,) = await submit_all(batcher, [7])
            worker.gate.set()
            assert [await short, await batch] == [4, 14]
            assert not long.done()
            return await long

    assert asyncio.run(run()) == 1000
    assert worker.turns[:4] == [[500], [500, 2], [500, 2], [500]]


def test_a_running_request_of_a_disconnected_client_is_canceled():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, max_wait_s=0) as batcher:
            gone, there = await submit_all(batcher, [400, 3], "flow")
            await first_turn(worker)
            gone.cancel()
            await asyncio.sleep(0)
            worker.gate.set()
            return await there

    assert asyncio.run(run()) == 6
    assert worker.turns == [[400, 3], [3], [3]]


@pytest.mark.parametrize(("culprit", "fate"), [(-1, "ValueError"), (13, "int")])
def test_a_failed_running_request_does_not_affect_the_others(culprit, fate):
    worker = Worker()

    async def run():
        async with Batcher(worker) as batcher:
            jobs = await submit_all(batcher, [4, culprit, 5], "flow")
            result = await asyncio.gather(*jobs, return_exceptions=True)
            return [*result, await batcher.submit("flow", 6, 6)]

    good, bad, better, later = asyncio.run(run())
    assert (good, better, later) == (8, 10, 12)
    assert type(bad).__name__ == fate  # what fails only in a batch does not fail alone
    assert not worker.under_way


def test_a_large_running_request_is_not_overtaken_forever():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, token_budget=10, max_wait_s=0) as batcher:
            jobs = await submit_all(batcher, [3, 9, 2], "flow")
            await first_turn(worker)
            worker.gate.set()
            await asyncio.gather(*jobs)

    asyncio.run(run())
    assert worker.turns[:4] == [[3], [3], [3], [9]]


def test_closing_finishes_running_requests_and_leaves_the_worker_idle():
    worker = Worker()

    async def run():
        batcher = Batcher(worker, max_wait_s=0)
        async with batcher:
            jobs = await submit_all(batcher, [30, 20], "flow")
        turns = len(worker.turns)
        async with Batcher(worker, max_wait_s=0):
            await asyncio.sleep(0.05)
        assert len(worker.turns) == turns
        return [job.result() for job in jobs]

    assert asyncio.run(run()) == [60, 40]


def test_reported_statistics_count_every_token_once():
    told = []

    async def run():
        async with Batcher(Worker(), on_batch=told.append) as batcher:
            asked = [(kind, n) for kind in ("a", "flow") for n in (3, 5)]
            await asyncio.gather(*(batcher.submit(kind, n, n) for kind, n in asked))

    asyncio.run(run())
    assert sum(batch.done for batch in told) == 16
    assert max(batch.tokens for batch in told) == 8
