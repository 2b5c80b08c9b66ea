"""Connections that are half closed, not read from, cut, crowded or flooded, on real sockets."""

import io
import json
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pyarrow
import pytest

from elmore.serve import chunks, responses
from elmore.serve.limits import Limits
from elmore.serve.protocol import TimeoutH11Protocol
from elmore.serve.responses import ARROW, MEDIA_TYPES, NPY
from elmore.serve.send_budget import SMALL_BYTES
from elmore.serve.texts import TokenizedTexts
from tests.support.live_server import Slow, engine_of, read_all, read_one, run_server
from tests.support.waiting import wait_until

HEAD = b"POST /encode HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"texts": ["a"]}'
REQUEST = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
LIMIT = 2000


def status(answer: bytes) -> int:
    """Of the last answer among what was read."""
    return int(answer.rsplit(b"HTTP/1.1 ", 1)[1][:3])


@pytest.fixture(scope="module")
def small(embedder):
    limits = Limits(body_bytes=LIMIT, body_seconds=1, header_seconds=5)
    with run_server(engine_of(embedder), limits=limits) as result:
        yield result


@contextmanager
def busy(embedder, **limits):
    """A server whose model is at work, so that whoever comes now waits."""
    slow = Slow(engine_of(embedder))
    with run_server(slow, limits=Limits(**limits)) as client:
        first = threading.Thread(target=client.post, args=("/encode", {"texts": ["a"]}))
        first.start()
        wait_until(lambda: slow.batches)
        try:
            yield client, slow
        finally:
            slow.gate.set()
            first.join()


def waiting(client) -> bool:
    return client.metric("elmore_queue_tokens") > 0


# Half-closed.


def test_a_client_that_stops_sending_is_answered(client):
    for request in (REQUEST, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"):
        with client.connected() as half:
            half.sendall(request)
            half.shutdown(socket.SHUT_WR)
            answer = read_all(half)
        assert answer.startswith(b"HTTP/1.1 200")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])


def test_a_client_that_stops_sending_while_it_waits_is_answered(embedder):
    with busy(embedder) as (client, slow), client.connected() as half:
        half.sendall(REQUEST)
        wait_until(lambda: waiting(client))
        half.shutdown(socket.SHUT_WR)
        answer = half.recv(65536)  # it is asked whether it is still there
        assert answer.startswith(b"HTTP/1.1 100 Continue")
        slow.gate.set()
        answer += read_all(half)
    *asked, last = answer.split(b"HTTP/1.1 ")[1:]
    assert set(asked) == {b"100 Continue\r\n\r\n"}
    assert last.startswith(b"200")
    assert last.endswith(b"]]}")


def test_pipelined_requests_are_answered_to_a_client_that_stops_sending(client):
    with client.connected() as half:
        half.sendall(3 * REQUEST)
        half.shutdown(socket.SHUT_WR)
        assert read_all(half).count(b"HTTP/1.1 200") == 3


def test_a_disconnected_request_is_dropped_before_it_is_computed(embedder):
    with busy(embedder) as (client, slow):
        with client.connected() as connection:
            connection.sendall(REQUEST)
            wait_until(lambda: waiting(client))
        wait_until(lambda: not waiting(client))
        slow.gate.set()
        assert client.metric('elmore_requests_total{route="/encode",status="499"}') == 1
    assert slow.batches == [1]


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (HEAD + b"Content-Length: 500\r\n\r\n{", b"the body ended before it was complete"),
        (b"GET /health HTTP/1.1\r\nHo", b"the headers ended before they were complete"),
    ],
)
def test_a_truncated_request_is_400(client, start, said):
    with client.connected() as half:
        half.sendall(start)
        half.shutdown(socket.SHUT_WR)
        answer = read_all(half)
    assert status(answer) == 400
    assert said in answer


def test_a_disconnect_inside_a_body_is_counted(embedder):
    with run_server(engine_of(embedder)) as client:
        with client.connected() as connection:
            connection.sendall(HEAD + b"Content-Length: 500\r\n\r\n{")
        wait_until(lambda: client.metric("elmore_requests_total{"))
        assert client.metric('elmore_requests_total{route="/encode",status="499"}') == 1
        assert client.metric('elmore_requests_total{route="/encode",status="400"}') == 0


# Answers that are not taken.


LARGE = json.dumps({"texts": ["a " * 40] * 200, "layers": "all"}).encode()
LARGE_BYTES = 200 * 40 * 3 * 12 * 4
AT_ONCE = json.dumps({"texts": ["a " * 40] * 34}).encode()
AT_ONCE_BYTES = 34 * 40 * 12 * 4


def ask_and_do_not_read(client, body: bytes = LARGE) -> socket.socket:
    result = socket.socket()
    result.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    result.connect(("127.0.0.1", client.port))
    head = HEAD.replace(b"/encode", b"/embed") + b"Connection: close\r\n"
    result.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    return result


GONE = 'elmore_requests_total{route="/embed",status="499"}'


@pytest.mark.parametrize(
    ("patience", "body"),
    [("send_seconds", LARGE), ("delivery_seconds", LARGE), ("send_seconds", AT_ONCE)],
)
def test_a_response_that_nobody_receives_is_dropped(embedder, patience, body):
    assert AT_ONCE_BYTES <= SMALL_BYTES < LARGE_BYTES  # not streamed, and streamed
    with run_server(engine_of(embedder), limits=Limits(**{patience: 0.5})) as client:
        with ask_and_do_not_read(client, body) as lazy:
            wait_until(lambda: client.metric('elmore_requests_total{route="/embed"'))
            assert client.metric(GONE) == 1
            with pytest.raises(ConnectionResetError):  # it is cut, after what had been sent
                wait_until(lambda: lazy.send(b"x") == 0)
        assert client.get("/health").status == 200
        assert client.metric("elmore_unsent_bytes") == 0


def test_a_client_that_receives_forever_is_cut_off(embedder):
    limits = Limits(send_seconds=600, delivery_seconds=0.5)
    with (
        run_server(engine_of(embedder), limits=limits) as client,
        ask_and_do_not_read(client) as slow,
    ):
        wait_until(lambda: slow.recv(64) and client.metric(GONE))
        try:
            rest = read_all(slow)
        except ConnectionResetError:
            rest = b""
    assert not rest.endswith(b"0\r\n\r\n")


def test_a_response_is_computed_no_faster_than_it_is_received(embedder, monkeypatch):
    computed = []
    dump = chunks.dump_array

    def counted(array):
        computed.append(array.nbytes)
        return dump(array)

    monkeypatch.setattr(chunks, "dump_array", counted)
    with run_server(engine_of(embedder)) as client, ask_and_do_not_read(client) as lazy:
        wait_until(lambda: computed)
        for _ in range(20):  # others are served while it waits
            assert client.get("/health").status == 200
        assert sum(computed) < LARGE_BYTES / 2
        assert client.metric("elmore_unsent_bytes") >= LARGE_BYTES
        answer = read_all(lazy)
        wait_until(lambda: client.metric("elmore_unsent_bytes") == 0)
    assert b"transfer-encoding: chunked" in answer.partition(b"\r\n\r\n")[0].lower()


def test_unsent_answers_over_the_budget_are_503_and_small_ones_are_still_given(embedder):
    limits = Limits(unsent_bytes=3 * LARGE_BYTES)
    with run_server(engine_of(embedder), limits=limits) as client:
        lazy = [ask_and_do_not_read(client) for _ in range(2)]
        wait_until(lambda: client.metric("elmore_unsent_bytes") >= 2 * LARGE_BYTES)
        refused = client.post("/embed", LARGE)
        assert refused.status == 503
        assert refused.headers["Retry-After"] == "10"
        assert "responses that other clients have not received yet take" in refused.detail
        assert client.post("/encode", {"texts": ["a"]}).status == 200
        for connection in lazy:
            connection.close()
        wait_until(lambda: client.metric("elmore_unsent_bytes") == 0)


def test_an_answer_that_never_fits_into_the_budget_is_413(embedder):
    with run_server(engine_of(embedder), limits=Limits(unsent_bytes=LARGE_BYTES)) as client:
        answer = client.post("/embed", LARGE)
    assert answer.status == 413
    assert "send the texts in several requests, or ask for fewer layers" in answer.detail


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_a_large_answer_is_the_same_in_pieces(embedder, client, media_type):
    texts = ["two ships wait ."] * 200
    answer = client.post("/embed", {"texts": texts, "layers": "all"}, Accept=media_type)
    result = embedder.embed(texts, layers="all")
    expected = responses.embed_response(
        TokenizedTexts([each.tokens for each in result], [each.offsets for each in result]),
        [each.vectors for each in result],
        np.zeros((3, 0, 12), np.float32),
        media_type,
    )
    assert len(answer.body) == len(expected.body) > SMALL_BYTES
    np.testing.assert_allclose(
        read(answer.body, media_type), read(expected.body, media_type), atol=1e-5
    )


def read(body: bytes, media_type: str) -> np.ndarray:
    """Read the vectors of an answer."""
    if media_type == NPY:
        return np.load(io.BytesIO(body), allow_pickle=False)
    if media_type == ARROW:
        rows = pyarrow.ipc.open_stream(body).read_all().to_pylist()
        return np.array([[row[f"layer_{number}"] for number in range(3)] for row in rows])
    return np.array([sentence["vectors"] for sentence in json.loads(body)["sentences"]])


def test_a_slow_client_gets_its_complete_response(embedder):
    with (
        run_server(engine_of(embedder), limits=Limits(send_seconds=3)) as client,
        ask_and_do_not_read(client) as slow,
    ):
        answer = b""
        for megabyte_tenths in range(1, 9):
            while len(answer) < 100_000 * megabyte_tenths:
                piece = slow.recv(65536)
                assert piece, "it was cut"
                answer += piece
            time.sleep(0.45)  # in all more than it may stop for
        answer += read_all(slow)
    assert answer.endswith(b"]}\r\n0\r\n\r\n")
    assert answer.count(b'"tokens"') == 200


def test_a_client_that_does_not_receive_does_not_block_shutdown(embedder):
    limits = Limits(send_seconds=600, shutdown_seconds=1.5)
    with run_server(engine_of(embedder), limits=limits) as client:
        lazy = ask_and_do_not_read(client)
        wait_until(lambda: client.metric("elmore_unsent_bytes"))
        start = time.monotonic()
    took = time.monotonic() - start
    lazy.close()
    assert 1.5 < took < 30


# Bodies that go on after the answer.


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"POST /encode HTTP/1.1\r\nContent-Type: application/json\r\n", 413),
        (b"POST /nothing HTTP/1.1\r\n", 404),
        (b"GET /health HTTP/1.1\r\n", 200),
    ],
)
@pytest.mark.parametrize("length", [b"Content-Length: 1900", b"Transfer-Encoding: chunked"])
def test_a_client_that_sends_after_its_response_gets_a_lingering_close(
    small, head, expected, length
):
    if expected == 413:
        length = length.replace(b"1900", b"1000000")
    with small.connected() as connection:
        body = b""
        if b"chunked" in length:
            body = b"10\r\n" + b"a" * 16 + b"\r\n"
            if expected == 413:
                body += b"900\r\n" + b"a" * 0x900 + b"\r\n"
        # In one piece: the body of a client that is kept from sending would be late.
        connection.sendall(head + b"Host: x\r\n" + length + b"\r\n\r\n" + body)
        answer = read_all(connection)  # up to the end that the server makes
        assert status(answer) == expected
        assert b"connection: close" in answer.lower()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            wait_until(lambda: connection.send(b"1\r\na\r\n") == 0 or time.sleep(0.05))


def test_a_body_without_end_is_cut_off_by_its_size(embedder):
    limits = Limits(body_bytes=LIMIT, body_seconds=600)
    with run_server(engine_of(embedder), limits=limits) as client, client.connected() as connection:
        connection.sendall(HEAD + b"Content-Length: 1000000000\r\n\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(b"a" * 200_000_000)


def test_a_request_that_is_refused_when_it_is_whole_keeps_its_connection(client):
    with client.connected() as connection:
        for path in (b"/nothing", b"/encode", b"/nothing"):
            body = b"[]"
            head = HEAD.replace(b"/encode", path)
            connection.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            assert read_one(connection).startswith(b"HTTP/1.1 4")


# Too many.


def test_one_connection_too_many_is_503_in_one_sentence(embedder):
    with run_server(engine_of(embedder), limits=Limits(connections=3)) as client:
        others = [client.connected() for _ in range(3)]
        wait_until(lambda: client.get("/health").status == 503)
        with client.connected() as connection:
            connection.sendall(REQUEST)
            answer = read_all(connection)
        for other in others:  # who was there before is served
            other.sendall(REQUEST)
            assert read_one(other).startswith(b"HTTP/1.1 200")
            other.close()
        wait_until(lambda: client.get("/health").status == 200)
        assert client.metric('elmore_requests_total{route="/encode",status="503"}') == 1
    head, _, body = answer.lower().partition(b"\r\n\r\n")
    assert head.startswith(b"http/1.1 503")
    for header in (b"retry-after: 1", b"connection: close", b"content-type: application/json"):
        assert header in head
    assert list(json.loads(body)) == ["detail"]


def test_responses_are_sent_at_once(embedder, monkeypatch):
    """Else the body of an answer waits for the client to have acknowledged its headers, 40 ms."""
    result = []
    made = TimeoutH11Protocol.connection_made

    def watched(self, transport):
        made(self, transport)
        socket_ = transport.get_extra_info("socket")
        result.append(socket_.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(TimeoutH11Protocol, "connection_made", watched)
    with run_server(engine_of(embedder)) as client:
        assert client.get("/health").status == 200
    assert all(result)
    assert result
