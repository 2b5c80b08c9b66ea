"""Some seconds of 32 clients, by the benchmark itself; and the benchmark's client."""

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from elmore.serve.limits import Limits
from elmore.weights import folder
from tests.support import toy_corpus
from tests.support.live_server import engine_of, run_server
from tests.support.sweeps import pick

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_thirty_two_clients_are_served_without_an_error_in_flat_memory(
    bundle, tmp_path, monkeypatch, capsys
):
    folder.save(bundle, tmp_path / "model")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in toy_corpus.sentences(400)))
    results = tmp_path / "results.json"
    command = ["serve_load.py", str(results)]
    command += ["--model", str(tmp_path / "model"), "--text", str(tmp_path / "text")]
    command += ["--clients", "32", "--seconds", pick("4", "20"), "--sentences", "200"]
    command += ["--slow", "4"]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    benchmark = load_benchmark()
    bulk = benchmark.bulk(["a storm"], [str(tmp_path / "model")], "exact", tmp_path)
    monkeypatch.setattr(benchmark, "bulk", lambda *_: bulk)  # once: it starts a process each time
    benchmark.main()
    result = json.loads(results.read_text())
    for part in ("alone", "loaded", "half"):
        assert set(result[part]["statuses"]) == {"200"}, part
    assert result["loaded"]["requests"] >= 32
    assert set(result["slow"]["statuses"]) == {"200"}
    assert result["exit"] == 0
    memory = result["megabytes"]
    assert memory[-1] < 1.1 * memory[len(memory) // 5]
    assert "32 clients" in capsys.readouterr().out


def load_benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("serve_load", ROOT / "benchmarks/serve_load.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    return benchmark


def test_the_client_does_not_ask_on_a_connection_that_the_server_may_have_closed(
    embedder, monkeypatch
):
    benchmark = load_benchmark()
    assert Limits().idle_seconds > benchmark.KEPT
    monkeypatch.setattr(benchmark, "KEPT", 0.1)
    (request,) = benchmark.prepared(["a storm"], 1)
    tally = benchmark.Tally()

    async def ask_twice(port: int) -> None:
        connection = benchmark.Connection(port)
        await connection.ask(request, tally)
        await asyncio.sleep(0.8)
        await connection.ask(request, tally)
        connection.close()

    with run_server(engine_of(embedder), limits=Limits(idle_seconds=0.3)) as client:
        asyncio.run(ask_twice(client.port))
    assert tally.statuses == {"200": 2}
