"""Start servers in a thread or in a process, with an HTTP client that shows raw answers.

Used by tests/serve.
"""

import asyncio
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from elmore.embed.embedder import Embedder
from elmore.serve import app, server
from elmore.serve.engine import Engine
from elmore.serve.limits import Limits
from tests.support.waiting import wait_until


class Payload(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        return self.json["detail"]


class Client(NamedTuple):
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Payload:
        """Send one request; a body that is no bytes is sent as JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            named = {"Content-Type": "application/json", **named}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Payload(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Payload:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Payload:
        return self.send("POST", path, body, **headers)

    def raw(self, data: bytes, *, timeout: float = 30) -> bytes:
        """Send bytes as they are, and give all that comes back until the end."""
        with self.connected(timeout) as connection:
            connection.sendall(data)
            return read_all(connection)

    def connected(self, timeout: float = 30) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def metric(self, name: str) -> float:
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def read_all(connection: socket.socket) -> bytes:
    result = b""
    while piece := connection.recv(65536):
        result += piece
    return result


def read_one(connection: socket.socket) -> bytes:
    """Read one answer of a connection that stays open."""
    result = b""
    while (end := _end(result)) is None or len(result) < end:
        piece = connection.recv(65536)
        assert piece, "it was cut"
        result += piece
    return result


def _end(answer: bytes) -> int | None:
    head, blank, _ = answer.lower().partition(b"\r\n\r\n")
    return len(head) + 4 + int(head.split(b"content-length: ")[1].split()[0]) if blank else None


@contextmanager
def run_server(
    engine: Engine, *, limits: Limits | None = None, token: str | None = None
) -> Iterator[Client]:
    """Serve in a thread; it must end well."""
    limits = limits or Limits()
    listening = server.bind_socket("127.0.0.1", 0)
    application = app.create(engine, limits=limits, token=token)
    running = server.make_server(application, limits)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve(sockets=[listening])))
    thread.start()
    try:
        wait_until(lambda: running.started)
        yield Client(listening.getsockname()[1])
    finally:
        running.should_exit = True
        thread.join(timeout=60)
        assert not thread.is_alive()


WITH_GRACE = """
import sys
from elmore import cli
from elmore.serve import protocol
protocol._SHUTDOWN_GRACE = float(sys.argv.pop(1))
cli.main()
"""


class Process:
    """The command, and the address it says it listens on.

    With `grace` it waits so many seconds at shutdown for a request that is on its way. The usual
    second can pass on a busy machine before a test has sent it.
    """

    def __init__(self, *arguments: str, grace: float | None = None, **environment: str) -> None:
        how = ["-m", "elmore"] if grace is None else ["-c", WITH_GRACE, str(grace)]
        self.process = subprocess.Popen(
            [sys.executable, *how, "serve", *arguments, "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        first = self.process.stderr.readline()
        result = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", first)
        assert result, first + self.process.stderr.read()
        self.port = int(result[1])

    def collect(self, lines: list[str]) -> threading.Thread:
        """Read what it says from now on, so that it is never held up by us."""
        reading = threading.Thread(target=lambda: lines.extend(self.process.stderr))
        reading.start()
        return reading

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def forget_serve(monkeypatch: Any) -> None:
    """Have `elmore.serve` imported anew, but for the limits, which the command line keeps."""
    for name in list(sys.modules):
        if name.startswith("elmore.serve") and name != "elmore.serve.limits":
            monkeypatch.delitem(sys.modules, name)


class Occurrence(NamedTuple):
    word: str
    tokens: list[str]
    position: int
    similarity: float
    line: int


class SmallIndex:
    """Every word of two sentences is equally near to everything."""

    LINES = (["two", "ships", "wait", "."], ["a", "storm", "comes", "."])
    layer = "top"
    search_cost = 8

    def search_vector(self, vector: np.ndarray, tokens: list[str], k: int) -> list[Occurrence]:
        uses = [
            Occurrence(word, words, number, 0.5, line)
            for line, words in enumerate(self.LINES)
            for number, word in enumerate(words)
        ]
        return uses[:k]


def engine_of(embedder: Embedder, *, index: bool = False) -> Engine:
    return Engine(embedder, SmallIndex() if index else None)


class Slow:
    """An engine whose work waits until it is let go, what joins and what runs as a batch."""

    def __init__(self, engine: Engine) -> None:
        self.inner, self.embedder, self.index = engine, engine.embedder, engine.index
        self.can_score, self.model_name = engine.can_score, engine.model_name
        self.supports_continuous_batching = engine.supports_continuous_batching
        self.supports_batching = engine.supports_batching
        self.step, self.abort = engine.step, engine.abort
        self.gate = threading.Event()
        self.batches: list[int] = []

    def run(self, kind: Any, works: Any) -> list[Any]:
        self.wait(len(works))
        return self.inner.run(kind, works)

    def add(self, works: Any) -> None:
        if works:
            self.wait(len(works))
        self.inner.add(works)

    def wait(self, num_works: int) -> None:
        self.batches.append(num_works)
        assert self.gate.wait(60)
