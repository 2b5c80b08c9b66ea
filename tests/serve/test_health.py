"""/health: an idle, a busy, a hung and a dead worker, and a device that fails."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from elmore.serve import health
from elmore.serve.batcher import Batcher
from elmore.serve.health import HealthStatus, check_health
from elmore.serve.limits import Limits
from elmore.serve.worker import WorkerDied
from tests.serve.test_batcher import Worker
from tests.support.live_server import Slow, engine_of, run_server
from tests.support.waiting import wait_until


def run(check, worker=None):
    """Check a batcher whose clock says what it is told to say."""
    clock = [0.0]

    async def watched():
        batcher = Batcher(worker or Worker(), max_wait_s=0, hang_seconds=60, clock=lambda: clock[0])
        async with batcher:
            return await check(batcher, clock)

    return asyncio.run(watched())


def test_an_idle_worker_probes_its_device():
    asked = []

    async def check(batcher, clock):
        return await check_health(
            batcher, "cpu", lambda: asked.append(threading.current_thread().name)
        )

    assert run(check) == HealthStatus("idle", 0.0, "ok", None)
    assert asked == ["model"]


def test_a_device_that_fails_is_named_without_its_message():
    def broken():
        raise RuntimeError("secret words")

    async def check(batcher, clock):
        return await check_health(batcher, "cuda:0", broken)

    result = run(check)
    assert (result.worker, result.device) == ("idle", "failed")
    assert result.problem == "cuda:0 has failed (RuntimeError); restart the server"


def test_a_busy_worker_is_healthy_until_it_takes_too_long():
    worker = Worker(held=True)

    async def check(batcher, clock):
        job = asyncio.ensure_future(batcher.submit("a", 1, 1))
        while not worker.batches:
            await asyncio.sleep(0)
        clock[0] = 59.0
        busy = await check_health(batcher, "cpu", lambda: None)
        clock[0] = 61.0
        hung = await check_health(batcher, "cpu", lambda: None)
        worker.gate.set()
        await job
        return busy, hung, await check_health(batcher, "cpu", lambda: None)

    busy, hung, after = run(check, worker)
    assert busy == HealthStatus("busy", 59.0, "ok", None)
    assert hung[:3] == ("hung", 61.0, "unknown")
    assert "in one call on cpu for 61 s, more than 60" in hung.problem
    assert after == HealthStatus("idle", 0.0, "ok", None)


def test_a_device_that_hangs_while_nobody_asks_for_work_is_noticed(monkeypatch):
    monkeypatch.setattr(health, "_PROBE_SECONDS", 0.01)
    gate = threading.Event()

    async def check(batcher, clock):
        first = await check_health(batcher, "cuda:0", lambda: gate.wait(30))
        clock[0] = 100.0
        second = await check_health(batcher, "cuda:0", lambda: None)
        gate.set()
        return first.worker, second.worker

    assert run(check) == ("busy", "hung")


def test_a_batcher_does_not_wait_for_a_worker_that_hangs():
    worker = Worker(held=True)

    async def check(batcher, clock):
        job = asyncio.ensure_future(batcher.submit("a", 1, 1))
        while not worker.batches:
            await asyncio.sleep(0)
        clock[0] = 61.0
        return job

    assert run(check, worker).cancelled()
    assert not worker.gate.is_set()  # nobody has let it go
    worker.gate.set()


class Dying(Worker):
    def run(self, kind, works):
        raise SystemExit

    def step(self):
        raise SystemExit


@pytest.mark.parametrize("kind", ["a", "flow"])
def test_waiting_and_later_requests_are_told_that_the_worker_died(kind):
    async def check(batcher, clock):
        jobs = [asyncio.ensure_future(batcher.submit(each, 1, 1)) for each in (kind, "b", "flow")]
        result = await asyncio.gather(*jobs, return_exceptions=True)
        with pytest.raises(WorkerDied, match="SystemExit"):
            await batcher.submit(kind, 1, 1)
        return result, await check_health(batcher, "cpu", lambda: None)

    result, condition = run(check, Dying())
    assert [type(each) for each in result] == [WorkerDied] * 3
    assert condition[:3] == ("dead", 0.0, "unknown")
    assert condition.problem == "the worker has died (SystemExit); restart the server"


def test_an_error_outside_a_call_ends_the_worker():
    def told(batch):
        raise ZeroDivisionError

    async def check():
        async with Batcher(Worker(), on_batch=told) as batcher:
            assert await batcher.submit("a", 1, 1) == 2  # its own work was done
            for _ in range(10):
                await asyncio.sleep(0)
            return await check_health(batcher, "cpu", lambda: None)

    assert asyncio.run(check()).worker == "dead"


def test_an_ended_thread_is_noticed():
    async def check(batcher, clock):
        batcher._thread.close()
        return await check_health(batcher, "cpu", lambda: None)

    result = run(check)
    assert result.worker == "dead"
    assert "its thread has ended" in result.problem


def test_a_hung_worker_is_503_with_its_reason_until_it_recovers(embedder):
    slow = Slow(engine_of(embedder))
    with (
        run_server(slow, limits=Limits(hang_seconds=0.05)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        job = pool.submit(client.post, "/encode", {"texts": ["a"]})
        wait_until(lambda: slow.batches)  # before /health, whose probe of the device could hang too
        wait_until(lambda: client.get("/health").status == 503)
        answer = client.get("/health")
        refused = client.post("/encode", {"texts": ["a"]})
        slow.gate.set()
        assert job.result().status == 200
        wait_until(lambda: client.get("/health").status == 200)
    result = answer.json
    assert result["status"] == "unhealthy"
    assert "the worker has been in one call on cpu for" in result["detail"]
    assert result["worker"]["state"] == "hung"
    assert result["worker"]["busy_seconds"] > 0.05
    assert result["device"] == {"name": "cpu", "state": "unknown"}
    assert result["width"] == 12
    assert refused.status == 503
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.detail.startswith("the worker has been in one call for")


def test_a_dead_worker_is_503_for_health_and_for_work_and_the_server_still_ends(embedder, caplog):
    class Dead(Slow):
        def add(self, works):
            raise SystemExit("secret words")

    with run_server(Dead(engine_of(embedder))) as client:
        for _ in range(2):
            answer = client.post("/encode", {"texts": ["a"]})
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.detail == "the worker has died (SystemExit); restart the server"
        answer = client.get("/health")
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.json["worker"]["state"] == "dead"
        assert json.loads(answer.body)["detail"].startswith("the worker has died")
    assert [record.message for record in caplog.records].count("the worker has died") == 1
