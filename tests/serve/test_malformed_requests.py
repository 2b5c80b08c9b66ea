"""Clients that err, lie, crawl or vanish: one sentence for each, and the server lives."""

import itertools
import json
import time

import pytest

from elmore.serve.limits import Limits
from tests.support.live_server import Slow, engine_of, read_all, run_server

HEAD = b"POST /encode HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
LIMIT = 2000


@pytest.fixture(scope="module")
def small(embedder):
    """A server of short patience for small bodies."""
    limits = Limits(body_bytes=LIMIT, body_seconds=2, header_seconds=2)
    with run_server(engine_of(embedder), limits=limits) as result:
        yield result


@pytest.fixture(autouse=True)
def _lives(small, client):
    yield
    for server in (small, client):
        assert server.post("/encode", {"texts": ["a"]}).status == 200


def sentence(answer) -> str:
    result = answer.json
    assert list(result) == ["detail"]
    assert "\n" not in result["detail"]
    return result["detail"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'{"texts": ["a"]', b"\xff\xfe", b'{"texts": ["a\x00"]}']
)
def test_a_body_that_is_not_json_is_400_or_422(client, body):
    answer = client.post("/encode", body)
    assert answer.status in (400, 422)
    assert sentence(answer)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "texts: field required"),
        ([], "body"),
        (None, "body"),
        ({"texts": "a"}, "texts: input should be a valid list, found 'a'"),
        ({"texts": [1]}, "texts.0"),
        ({"texts": [None]}, "texts.0"),
        ({"texts": [["a", 1]]}, "texts.0.1: input should be a valid string, found 1"),
        ({"texts": ["a"] * 257}, "texts: list should have at most 256 items"),
        ({"texts": ["a"], "more": 1}, "more: extra inputs are not permitted"),
        ({"texts": ["a" * 20_001]}, "texts.0: string should have at most 20000 characters"),
        ({"texts": ["\ud800"]}, "texts.0"),
    ],
)
def test_wrong_types_are_422_and_named(client, body, said):
    answer = client.post("/encode", json.dumps(body).encode())
    assert answer.status == 422
    assert said in sentence(answer)


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("more-texts", "'more-texts'"),
        ("texts[0]", "'texts[0]'"),
        ("call()", "'call()'"),
        ("two\nlines", r"'two\nlines'"),
        ("größe", r"'gr\xf6\xdfe'"),
        ("", "''"),
        ("k" * 10_000, "'" + "k" * 39 + "..."),
        ("\n" * 10_000, "'" + r"\n" * 19 + "\\..."),
    ],
)
def test_a_key_that_is_not_known_is_named_whatever_it_is(client, key, named):
    answer = client.post("/encode", {"texts": ["a"], key: 1})
    assert answer.status == 422
    assert sentence(answer) == f"{named}: extra inputs are not permitted, found 1"


def test_input_is_quoted_on_one_line_and_truncated(client):
    answer = client.post("/encode", {"texts": "a\n" * 5000})
    assert answer.status == 422
    assert sentence(answer).startswith(r"texts: input should be a valid list, found 'a\na\n")
    assert len(sentence(answer)) < 100
    answer = client.send("X" * 5000, "/embed")
    assert answer.status == 405
    assert len(sentence(answer)) < 100


def test_deep_nesting_and_huge_numbers_are_refused(client):
    assert client.post("/encode", b"[" * 100_000).status in (400, 422)
    assert client.post("/neighbors", b'{"text": "[a]", "k": %b}' % (b"9" * 5000)).status in (
        400,
        422,
    )
    assert client.post("/neighbors", b'{"text": "[a]", "k": NaN}').status == 422


@pytest.mark.parametrize(
    "body", [b'{"texts": %b' % (b"[" * 100_000), b'{"texts": [%b]}' % (b"9" * 5000), b'"\xff"']
)
def test_what_the_json_parser_cannot_read_is_explained_in_one_sentence(client, body):
    answer = client.post("/encode", body)
    assert answer.status == 400
    assert answer.detail.startswith("the body is not JSON: it is not UTF-8, nested too deeply, or")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"texts": ["a\x01"]}', "invalid control character at character 13"),
        (b'{"texts": ["a', "unterminated string starting at character 11"),
        (b'{"texts": ["\\a"]}', r"invalid \escape at character 12"),
    ],
)
def test_the_place_that_is_not_json_is_named_once(client, body, said):
    assert client.post("/encode", body).detail == f"the body is not JSON: {said}"


def test_several_accept_headers_are_one_list(client):
    head = HEAD + b"Connection: close\r\nAccept: text/html\r\nAccept: application/x-npy\r\n"
    answer = client.raw(head + b'Content-Length: 15\r\n\r\n{"texts":["a"]}')
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"application/x-npy" in answer


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/json", "image/svg+json", "application /json", "/json"]
)
def test_a_body_without_a_json_content_type_is_415(client, kind):
    answer = client.post("/encode", {"texts": ["a"]}, Content_Type=kind)
    assert answer.status == 415
    assert "Content-Type: application/json" in sentence(answer)


def test_an_unknown_media_type_is_406(client):
    answer = client.post("/embed", {"texts": ["a"]}, Accept="image/png")
    assert answer.status == 406
    assert "application/x-npy" in sentence(answer)


def test_huge_bodies_are_413_declared_or_not(small):
    body = json.dumps({"texts": ["a" * (5 * LIMIT)]}).encode()
    declared = small.post("/encode", body)
    assert declared.status == 413
    assert f"the body exceeds the limit of {LIMIT} bytes" in sentence(declared)
    chunk = b"%x\r\n%b\r\n" % (len(body), body)
    head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = small.raw(head + chunk + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_that_never_ends_is_cut_off(small):
    with small.connected() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        endless = iter(lambda: connection.sendall(b"400\r\n" + b"a" * 1024 + b"\r\n"), 0)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            list(itertools.islice(endless, 200_000))


def test_a_huge_request_with_expect_100_continue_is_refused_before_its_body(small):
    head = HEAD + b"Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n"
    assert small.raw(head).startswith(b"HTTP/1.1 413")


def test_a_slow_body_is_408(small):
    answer = small.raw(HEAD + b'Content-Length: 20\r\n\r\n{"te')
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"the body was not received within 2 seconds" in answer


def test_slow_headers_are_408(small):
    start = time.monotonic()
    answer = small.raw(b"POST /encode HTTP/1.1\r\nHo")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"the headers were not received within 2 seconds" in answer
    assert time.monotonic() - start < 20


def test_slow_headers_of_a_second_request_are_408_too(small):
    with small.connected() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /hea")
        assert b"408" in read_all(connection)


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"hello\r\n\r\n"],
)
def test_a_request_that_is_not_http_is_400(client, data):
    answer = client.raw(data)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b'{"detail":"not valid HTTP/1.1' in answer


def test_a_head_request_that_is_not_http_is_400_without_a_body(client, caplog):
    head = b"HEAD /encode HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = client.raw(head + b"no size\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(b"\r\n\r\n")
    client.get("/health")  # after what the server does with the request
    assert [record.levelname for record in caplog.records if record.exc_info] == []


def test_headers_without_end_are_400(client):
    try:
        answer = client.raw(b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000)
    except (ConnectionResetError, BrokenPipeError):  # it was closed before all was sent
        return
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/page.js/../../app.py",
        "//page.html",
        "/page.html",
        "/static/%00",
        "/embed/",
        "/docs",
    ],
)
def test_other_paths_are_404_and_reach_no_file(client, path):
    answer = client.get(path)
    assert answer.status == 404
    assert "/openapi.json" in sentence(answer)


def test_another_method_is_405_and_names_the_right_one(client):
    answer = client.get("/embed")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert sentence(answer) == "this route does not accept GET, only POST"
    assert client.send("DELETE", "/health").status == 405


def test_an_unexpected_fault_is_500_in_one_sentence(embedder):
    class Broken(Slow):
        def add(self, works):
            raise RuntimeError("secret words")

    with run_server(Broken(engine_of(embedder))) as client:
        answer = client.post("/encode", {"texts": ["a"]})
        assert answer.status == 500
        assert "secret" not in sentence(answer)
        assert client.metric('elmore_requests_total{route="/encode",status="500"}') == 1
