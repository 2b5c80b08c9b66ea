"""`elmore serve` as a process of its own: its end, its words, its refusals."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from elmore.embed.embedder import Embedder
from elmore.probe.neighbors import UseIndex
from elmore.weights import folder
from tests import language
from tests.cli.running import elmore_command
from tests.serve.serving import Client

SECRET = "long-enough"


@pytest.fixture(scope="module")
def model(bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model"
    folder.save(bundle, path)
    return str(path)


class Process:
    """The command, and the address it says it listens on."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "elmore", "serve", *arguments, "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        first = self.process.stderr.readline()
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", first)
        assert found, first + self.process.stderr.read()
        self.port = int(found[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


async def ask(reader, writer, texts: list[str]) -> tuple[int, bool]:
    """Send a request on an open connection; its status, and whether the connection stays."""
    body = json.dumps({"texts": texts}).encode()
    head = "POST /encode HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {SECRET}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(re.search(r"content-length: (\d+)", headers)[1])
    await reader.readexactly(length)
    return int(headers.split()[1]), "connection: close" not in headers


async def load(port: int, process: subprocess.Popen, clients: int) -> tuple[list[int], int]:
    """Ask from many sides until the server ends; statuses, and requests that had no answer."""
    statuses: list[int] = []
    unanswered = 0

    async def client(number: int) -> None:
        nonlocal unanswered
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stays = True
        while stays:
            try:
                status, stays = await ask(reader, writer, [f"a storm {number} ."] * 20)
                statuses.append(status)
            except (OSError, asyncio.IncompleteReadError):
                unanswered += 1
                break
        writer.close()

    jobs = [asyncio.create_task(client(number)) for number in range(clients)]
    while len(statuses) < 3 * clients:
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    await asyncio.gather(*jobs)
    return statuses, unanswered


def test_every_request_is_answered_when_the_server_is_told_to_end(model):
    with Process(model, ELMORE_TOKEN=SECRET) as running:
        statuses, unanswered = asyncio.run(load(running.port, running.process, 24))
        assert running.process.wait(timeout=60) == 0
        told = running.process.stderr.read()
    assert set(statuses) == {200}
    assert unanswered == 0
    lines = [json.loads(line) for line in told.splitlines()]
    assert sum(line["event"] == "request" for line in lines) == len(statuses)


def test_an_index_that_elmore_neighbors_built_is_served(bundle, model, tmp_path):
    text, place = tmp_path / "text.txt", tmp_path / "uses"
    text.write_text("".join(f"{line}\n" for line in language.sentences(60)))
    built = elmore_command("neighbors", model, str(text), "--index", str(place), "--tokenized")
    assert built.code == 0, built.err
    query = {"text": "two small [birds] wait .", "k": 4}
    with Process(model, "--index", str(place)) as running:
        found = Client(running.port).post("/neighbors", query).json
        refused = Client(running.port).post("/neighbors", {"text": "two small birds"})
    index = UseIndex.open(place, Embedder(bundle))
    expected = index.search(["two", "small", "birds", "wait", "."], 2, 4)
    assert found["word"] == "birds"
    assert [(use["tokens"], use["position"], use["line"]) for use in found["neighbors"]] == [
        (use.tokens, use.position, use.line) for use in expected
    ]
    similarities = [use["similarity"] for use in found["neighbors"]]
    assert similarities == pytest.approx([use.similarity for use in expected], abs=1e-5)
    assert refused.status == 422
    assert "no word is marked" in refused.detail


def test_a_port_in_use_is_one_sentence(model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = elmore_command("serve", model, "--port", str(taken.getsockname()[1]))
    assert found.code == 1
    assert "cannot be listened on" in found.err


def test_a_host_that_is_not_ours_is_one_sentence(model):
    found = elmore_command("serve", model, "--host", "192.0.2.1", "--port", "0")
    assert found.code == 1
    assert "choose with --host and --port" in found.err


@pytest.mark.parametrize("token", ["short", "with spaces in it", "ünïcödë-token"])
def test_a_poor_token_is_refused(model, token, tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_TOKEN", token)
    assert "ELMORE_TOKEN: a token has 8 letters" in elmore_command("serve", model).err
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    found = elmore_command("serve", model, "--token-file", str(file))
    assert found.code == 1
    assert f"{file}: a token has" in found.err


def test_without_the_extra_it_is_named(model, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("elmore.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    found = elmore_command("serve", model)
    assert found.code == 1
    assert "pip install 'elmore[serve]'" in found.err
