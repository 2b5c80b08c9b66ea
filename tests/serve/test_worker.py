"""The thread of the worker: what it returns, what it raises, and how long it has been at it."""

import asyncio
import gc
import threading
import weakref

import pytest

from elmore.serve.worker import WorkerDied, WorkerThread


def run(check):
    clock = [0.0]

    async def watched():
        thread = WorkerThread(clock=lambda: clock[0])
        try:
            return await check(thread, clock)
        finally:
            thread.close()
            assert not thread.alive

    return asyncio.run(watched())


def test_calls_return_and_raise_what_they_do():
    async def check(thread, clock):
        assert await thread.run(lambda: 2) == 2
        with pytest.raises(ValueError, match="no"):
            await thread.run(lambda: int("no"))
        assert not thread.busy

    run(check)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exit_in_the_worker_is_reported_as_its_death(kind):
    async def check(thread, clock):
        def end():
            raise kind

        with pytest.raises(WorkerDied, match=kind.__name__):
            await thread.run(end)

    run(check)


def test_busy_seconds_are_those_of_the_oldest_call():
    async def check(thread, clock):
        gate = threading.Event()
        first = asyncio.ensure_future(thread.run(lambda: gate.wait(30)))
        await asyncio.sleep(0)
        clock[0] = 5.0
        second = asyncio.ensure_future(thread.run(lambda: 1))
        await asyncio.sleep(0)
        clock[0] = 7.0
        assert thread.busy
        assert thread.busy_seconds == 7.0
        gate.set()
        assert await asyncio.gather(first, second) == [True, 1]
        assert (thread.busy, thread.busy_seconds) == (False, 0.0)

    run(check)


def test_a_canceled_call_is_not_run():
    async def check(thread, clock):
        gate, done = threading.Event(), []
        first = asyncio.ensure_future(thread.run(lambda: gate.wait(30)))
        second = asyncio.ensure_future(thread.run(lambda: done.append(1)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        await first
        assert await thread.run(lambda: 3) == 3
        assert not done
        assert not thread.busy

    run(check)


def test_an_idle_thread_keeps_no_result():
    class Large:
        pass

    async def check(thread, clock):
        result = weakref.ref(await thread.run(Large))
        await thread.run(lambda: None)
        gc.collect()
        assert result() is None

    run(check)
