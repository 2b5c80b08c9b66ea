"""SIGTERM: whatever the server has read is answered, nobody gets half an answer, and it ends."""

import asyncio
import json
import re
import signal
from collections import Counter

import pytest

from tests.support.live_server import Process

SECRET = "long-enough"
CLIENTS = 8  # of each kind
GRACE = 3  # seconds


def request(number: int, *, texts: int = 20) -> bytes:
    body = json.dumps({"texts": [f"a storm {number} ."] * texts}).encode()
    head = "POST /encode HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {SECRET}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Load:
    """Clients of several kinds, and what became of each request."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.found: Counter[tuple[str, str]] = Counter()
        self.ended = asyncio.Event()

    async def answer(self, kind: str, reader: asyncio.StreamReader) -> bool:
        """Read an answer, count how it was, and say whether there may be another."""
        received = b""
        try:
            while not received.startswith(b"HTTP/1.1 ") or received.startswith(b"HTTP/1.1 100"):
                received = b""
                received = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", received.lower())[1])
            await reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            self.found[kind, "half" if received or error.partial else "nothing"] += 1
            return False
        except OSError:
            self.found[kind, "half" if received else "nothing"] += 1
            return False
        self.found[kind, received[9:12].decode()] += 1
        return b"connection: close" not in received.lower()

    async def stays(self, number: int) -> None:
        """Ask again on one connection until the server says goodbye."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        stays = True
        while stays:
            writer.write(request(number))
            stays = await self.answer("stays", reader)
        writer.close()

    async def comes_anew(self, number: int, *, half_closed: bool) -> None:
        """Ask on a connection of its own each time, as long as there is somebody."""
        kind = "half-closed" if half_closed else "anew"
        while not self.ended.is_set():
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(request(number))
                if half_closed:
                    writer.write_eof()
            except OSError:  # the door is shut
                return
            await self.answer(kind, reader)
            writer.close()

    async def comes_once(self) -> None:
        """Ask once, and wait for the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request(0))
        await self.answer("once", reader)
        writer.close()

    async def asks_twice(self, number: int) -> None:
        """Send two requests at once."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        stays = True
        while stays:
            writer.write(2 * request(number, texts=3))
            stays = await self.answer("twice", reader) and await self.answer("twice", reader)
        writer.close()

    async def run(self, running: Process, after: int) -> None:
        """Tell the server to end when so many are answered."""
        jobs = [
            asyncio.create_task(job)
            for number in range(CLIENTS)
            for job in (
                self.stays(number),
                self.comes_anew(number, half_closed=False),
                self.comes_anew(number, half_closed=True),
                self.asks_twice(number),
            )
        ]
        while self.found.total() < after:
            await asyncio.sleep(0.001)
        running.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(running.process.wait, 60)
        self.ended.set()
        await asyncio.gather(*jobs)


@pytest.mark.parametrize("after", [40, 333])
def test_every_accepted_request_gets_a_complete_response(model, after):
    async def run(running):
        load = Load(running.port)
        await load.run(running, after)
        return load.found

    with Process(model, grace=GRACE, ELMORE_TOKEN=SECRET) as running:
        told: list[str] = []
        reading = running.collect(told)
        result = asyncio.run(run(running))
        assert running.process.wait(timeout=60) == 0
        reading.join()
    assert {outcome for _, outcome in result} <= {"200", "nothing"}
    assert result["stays", "nothing"] == 0
    lines = [json.loads(line) for line in told]
    read = [line["status"] for line in lines if line["event"] == "request"]
    assert set(read) == {200}
    assert len(read) == sum(count for (_, outcome), count in result.items() if outcome == "200")


async def shut(port: int) -> None:
    """Wait until nobody is let in any more."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        writer.close()
        await asyncio.sleep(0.01)


def test_shutdown_answers_running_requests_and_closes_idle_connections(model):
    async def run(running):
        pairs = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(3)]
        (begun, sending), (late, asking), (idle, _) = pairs
        data = request(1)
        sending.write(data[:-9])
        await Load(running.port).comes_once()  # what came before it is read before it
        running.process.send_signal(signal.SIGTERM)
        await shut(running.port)
        asking.write(data)
        answers = [await late.read()]
        nothing = await idle.read()
        sending.write(data[-9:])
        answers.append(await begun.read())
        for _, writer in pairs:
            writer.close()
        return answers, nothing

    with Process(model, grace=GRACE, ELMORE_TOKEN=SECRET) as running:
        answers, nothing = asyncio.run(run(running))
        assert running.process.wait(timeout=60) == 0
    assert nothing == b""
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answer.lower()
