"""The queue: what is gathered, what is refused, what is dropped, what is finished."""

import asyncio
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.serve.batcher import Batcher, QueueFull


class Worker:
    """Doubles numbers; keeps what came together, and may be held up."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.gate = threading.Event()
        if not held:
            self.gate.set()

    def __call__(self, kind, works):
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
@settings(max_examples=40)
def test_everyone_gets_their_own_result_and_no_batch_is_over_budget_or_mixed(asked):
    worker = Worker()

    async def run():
        async with Batcher(worker, token_budget=50, patience=0.001) as batcher:
            return await asyncio.gather(*(batcher.submit(kind, n, n) for kind, n in asked))

    assert asyncio.run(run()) == [2 * number for _, number in asked]
    for kind, works in worker.batches:
        assert sum(works) <= 50
        assert all((kind, work) in asked for work in works)
    assert sum(len(works) for _, works in worker.batches) == len(asked)


def test_what_waits_while_the_worker_is_busy_runs_together_in_the_order_it_came():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, token_budget=100, patience=0) as batcher:
            first = await submit_all(batcher, [1])
            while not worker.batches:
                await asyncio.sleep(0.001)
            others = await submit_all(batcher, [5, 6, 7])
            worker.gate.set()
            return await asyncio.gather(*first, *others)

    assert asyncio.run(run()) == [2, 10, 12, 14]
    assert worker.batches == [("a", [1]), ("a", [5, 6, 7])]


def test_the_loop_is_free_while_the_worker_works():
    async def run():
        async with Batcher(lambda kind, works: time.sleep(0.3) or works, patience=0) as batcher:
            (job,) = await submit_all(batcher, [1])
            turns = 0
            while not job.done():
                await asyncio.sleep(0.005)
                turns += 1
            return turns

    assert asyncio.run(run()) > 10


def test_a_full_queue_refuses_and_says_when_to_come_again():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, token_budget=10, room=20, patience=0) as batcher:
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


def test_a_request_larger_than_the_room_is_taken_when_nobody_waits():
    async def run():
        async with Batcher(Worker(), token_budget=10, room=20, patience=0) as batcher:
            return await batcher.submit("a", 50, 50)

    assert asyncio.run(run()) == 100


def test_who_went_away_is_not_computed():
    worker = Worker(held=True)

    async def run():
        async with Batcher(worker, patience=0) as batcher:
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


def test_one_that_fails_fails_alone():
    async def run():
        async with Batcher(Worker(), patience=0.01) as batcher:
            jobs = await submit_all(batcher, [4, -1, 5])
            return await asyncio.gather(*jobs, return_exceptions=True)

    good, bad, better = asyncio.run(run())
    assert (good, better) == (8, 10)
    assert isinstance(bad, ValueError)


def test_leaving_finishes_what_was_accepted_and_takes_no_more():
    worker = Worker(held=True)

    async def run():
        batcher = Batcher(worker, token_budget=3, patience=0)
        async with batcher:
            jobs = await submit_all(batcher, [1, 2, 3])
            threading.Timer(0.1, worker.gate.set).start()
        with pytest.raises(QueueFull):
            await batcher.submit("a", 1, 1)
        return [job.result() for job in jobs]

    assert asyncio.run(run()) == [2, 4, 6]


def test_a_lone_request_waits_no_longer_than_the_patience():
    async def run():
        async with Batcher(Worker(), patience=0.05) as batcher:
            start = time.monotonic()
            await batcher.submit("a", 1, 1)
            return time.monotonic() - start

    assert 0.04 < asyncio.run(run()) < 5
