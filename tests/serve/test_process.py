"""`elmore serve` as a process of its own: its words and its refusals."""

import re
import socket
import sys
from dataclasses import replace

import pytest

from elmore.embed.embedder import Embedder
from elmore.probe.neighbors.index import OccurrenceIndex
from elmore.serve import logs, server
from elmore.serve.limits import Limits
from tests.support import toy_corpus
from tests.support.cli_runner import run_elmore
from tests.support.live_server import Client, Process, engine_of, forget_serve, run_server


def test_an_index_that_elmore_neighbors_built_is_served(bundle, model, tmp_path):
    text, folder = tmp_path / "text.txt", tmp_path / "uses"
    text.write_text("".join(f"{line}\n" for line in toy_corpus.sentences(60)))
    built = run_elmore("neighbors", model, str(text), "--index", str(folder), "--tokenized")
    assert built.code == 0, built.err
    query = {"text": "two small [birds] wait .", "k": 4}
    with Process(model, "--index", str(folder)) as running:
        result = Client(running.port).post("/neighbors", query).json
        refused = Client(running.port).post("/neighbors", {"text": "two small birds"})
    index = OccurrenceIndex.open(folder, Embedder(bundle))
    expected = index.search(["two", "small", "birds", "wait", "."], 2, 4)
    assert result["word"] == "birds"
    assert [(use["tokens"], use["position"], use["line"]) for use in result["neighbors"]] == [
        (use.tokens, use.position, use.line) for use in expected
    ]
    similarities = [use["similarity"] for use in result["neighbors"]]
    assert similarities == pytest.approx([use.similarity for use in expected], abs=1e-5)
    assert refused.status == 422
    assert "no word is marked" in refused.detail


def test_a_port_in_use_is_reported_in_one_sentence(model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run_elmore("serve", model, "--port", str(taken.getsockname()[1]))
    assert result.code == 1
    assert "cannot listen on" in result.err


@pytest.mark.parametrize("host", ["192.0.2.1", "no..name", f"{'a' * 64}.example"])
def test_a_host_that_cannot_be_bound_is_reported_in_one_sentence(host):
    result = run_elmore("serve", "no-such-model", "--host", host, "--port", "0", "--no-token")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "choose another --host or --port" in result.err


@pytest.mark.parametrize("token", ["short", "with spaces in it", "ünïcödë-token"])
def test_a_weak_token_is_refused(model, token, tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_TOKEN", token)
    assert "ELMORE_TOKEN: a token must have at least 8" in run_elmore("serve", model).err
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    result = run_elmore("serve", model, "--token-file", str(file))
    assert result.code == 1
    assert f"{file}: a token must" in result.err


def test_a_token_that_is_not_text_is_refused(model, tmp_path):
    file = tmp_path / "token"
    file.write_bytes(b"\xff\xfe12345678")
    result = run_elmore("serve", model, "--token-file", str(file))
    assert result.code == 1
    assert f"{file}: a token must have at least 8" in result.err


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_a_host_that_others_reach_is_refused_without_a_token(host):
    result = run_elmore("serve", "no-such-model", "--host", host, "--port", "0")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert f"--host {host} can be reached by other machines, and there is no token" in result.err
    assert "--no-token" in result.err


@pytest.mark.parametrize("host", ["127.0.0.2", "localhost"])
def test_loopback_needs_no_token(host):
    result = run_elmore("serve", "no-such-model", "--host", host, "--port", "0")
    assert "no-such-model" in result.err


def test_other_machines_are_served_with_a_token_or_an_explicit_option(monkeypatch):
    arguments = ("serve", "no-such-model", "--host", "0.0.0.0", "--port", "0")
    assert "no-such-model" in run_elmore(*arguments, "--no-token").err
    monkeypatch.setenv("ELMORE_TOKEN", "long-enough")
    assert "no-such-model" in run_elmore(*arguments).err
    result = run_elmore(*arguments, "--no-token")
    assert result.code == 1
    assert "--no-token, but ELMORE_TOKEN holds a token" in result.err


OPTIONS = {
    "max-body-bytes": "body_bytes",
    "max-texts": "texts",
    "max-tokens": "tokens",
    "max-queue-tokens": "queue_tokens",
    "max-unsent-bytes": "unsent_bytes",
    "max-connections": "connections",
    "body-seconds": "body_seconds",
    "response-seconds": "response_seconds",
    "delivery-seconds": "delivery_seconds",
    "idle-seconds": "idle_seconds",
    "shutdown-seconds": "shutdown_seconds",
    "hang-seconds": "hang_seconds",
}


def test_every_limit_of_the_command_line_reaches_the_server(model, monkeypatch):
    result = []
    monkeypatch.setattr(server, "serve", lambda running, listener: None)
    monkeypatch.setattr(logs, "log_to_stderr", lambda: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    monkeypatch.setattr(server, "make_server", lambda app, limits: result.append(limits))
    said = [word for i, name in enumerate(OPTIONS) for word in (f"--{name}", str(70_000 + i))]
    for options in ([], said):
        assert run_elmore("serve", model, "--port", "0", *options).code == 0
    usual, changed = result
    assert usual == Limits()
    expected = {field: 70_000 + i for i, field in enumerate(OPTIONS.values())}
    assert changed == replace(Limits(), **expected)


def test_the_help_names_every_limit_and_its_default():
    shown = run_elmore("serve", "--help").out
    for name, field in OPTIONS.items():
        assert f"--{name}" in shown
        assert f"[default: {getattr(Limits(), field)}]" in " ".join(shown.split())


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "many"])
def test_a_limit_that_limits_nothing_is_refused(value):
    result = run_elmore("serve", "no-such-model", "--response-seconds", value)
    assert result.code in (1, 2)
    assert re.search(
        r"Invalid value for '--response-seconds'|limits\.response_seconds: found", result.err
    )


def test_a_budget_that_no_response_fits_into_is_refused_by_the_name_of_its_option():
    result = run_elmore("serve", "no-such-model", "--max-unsent-bytes", "65535")
    assert result.code == 2
    assert "Invalid value for '--max-unsent-bytes'" in result.err


def test_a_worker_that_waits_for_clients_is_not_hung():
    result = run_elmore("serve", "no-such-model", "--response-seconds", "600")
    assert result.code == 1
    assert "--hang-seconds 120 is less than --response-seconds 600" in result.err


def test_the_number_of_texts_is_as_it_was_set(embedder):
    with run_server(engine_of(embedder), limits=Limits(texts=2)) as client:
        for path in ("/embed", "/encode", "/score"):
            assert client.post(path, {"texts": ["a"] * 2}).status == 200
            answer = client.post(path, {"texts": ["a"] * 3})
            assert answer.status == 422
            assert "texts: list should have at most 2 items" in answer.detail


def test_without_the_extra_it_is_named(model, monkeypatch):
    forget_serve(monkeypatch)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = run_elmore("serve", model)
    assert result.code == 1
    assert "pip install 'elmore[serve]'" in result.err
