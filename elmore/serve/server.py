"""uvicorn, made patient with work and impatient with clients.

Beyond what it does already: headers that do not come are not waited for; what is no HTTP is told so
in one sentence; SIGTERM is a normal end; and a request that is on its way when the end begins is
still read and answered.
"""

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from elmore.errors import ConfigError

_LINGER = 1.0  # seconds, for a request that has been sent and not been read
_CONNECTIONS = 2048
_GOODBYE = (b"connection", b"close")
_IDLE = 30  # seconds a connection without a request is kept


class Server(uvicorn.Server):
    """A server whose end by a signal is a good end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen for signals; uvicorn would die of them in the end."""
        wanted = (signal.SIGINT, signal.SIGTERM)
        try:
            before = {number: signal.signal(number, self.handle_exit) for number in wanted}
        except ValueError:  # only the main thread may listen
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Patient(H11Protocol):
    """HTTP/1.1 that does not wait for headers for ever, and says goodbye before it ends."""

    header_seconds: float
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for headers."""
        super().connection_made(transport)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for anything."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on waiting until the headers are complete."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._deadline is None and self.timeout_keep_alive_task is None:
            self._wait_for_headers()  # a part of the headers of a next request

    def _wait_for_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing() and self.conn.our_state is h11.IDLE:
            sentence = f"the headers did not come within {self.header_seconds:g} seconds"
            self._refuse(408, sentence)

    def send_400_response(self, msg: str) -> None:
        """Say in one sentence that this is no HTTP."""
        sent = self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
        if sent:  # it is too late to say anything
            self.transport.close()
        else:
            self._refuse(400, "this is no HTTP/1.1, or its headers are too long")

    def _refuse(self, status: int, sentence: str) -> None:
        body = json.dumps({"detail": sentence}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            _GOODBYE,
        ]
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def shutdown(self) -> None:
        """Answer what is asked, say that it is the last, and wait for what is on its way."""
        if _GOODBYE not in self.server_state.default_headers:
            self.server_state.default_headers = [*self.server_state.default_headers, _GOODBYE]
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(_LINGER, self._end)
        else:
            self.cycle.default_headers = self.server_state.default_headers
            super().shutdown()

    def _end(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()


def listening(host: str, port: int) -> socket.socket:
    """Take the address before the model is loaded: a port in use is told at once.

    Who comes early waits at the door.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(_CONNECTIONS)
        except OSError:
            found.close()
            raise
    except OSError as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{host}:{port} cannot be listened on ({reason}); choose with --host and --port"
        ) from error
    return found


def address(found: socket.socket) -> str:
    """Give the address of a socket as a browser takes it."""
    host, port, *_ = found.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server(app: FastAPI, *, header_seconds: float, **more: Any) -> Server:  # noqa: ANN401
    """Give a server for the app; `run(sockets=[…])` serves until a signal comes."""
    return Server(
        uvicorn.Config(
            app,
            http=type("Protocol", (Patient,), {"header_seconds": header_seconds}),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE,
            limit_concurrency=_CONNECTIONS,
            backlog=_CONNECTIONS,
            h11_max_incomplete_event_size=32768,
            **more,
        )
    )
