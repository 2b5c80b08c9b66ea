"""uvicorn's HTTP/1.1 protocol with timeouts, half-closed clients and a lingering close.

Beyond what uvicorn does: there are timeouts for headers and for clients that do not receive their
response; what is not HTTP gets an error in one sentence; a client that has closed its half of the
connection still gets its response; and a connection is closed so that the client can read its last
response.

This is the one file that builds on undocumented parts of uvicorn. Its options (`server.py`) do not
suffice: `limit_concurrency` rejects in plain text, uncounted, also on connections that were open
before; there is no timeout for headers or responses; and `timeout_graceful_shutdown` ends tasks and
leaves their connections open.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from fastapi import HTTPException

from elmore.errors import MissingPackageError
from elmore.serve.errors import error_response
from elmore.serve.limits import Limits
from elmore.serve.middleware import IS_CLOSING, OVER_LIMIT

UVICORN = "uvicorn>=0.32,<0.55"
"""The tested versions, as in pyproject.toml."""


def _unknown(name: str) -> str:
    return f"uvicorn {uvicorn.__version__} has no {name}: pip install '{UVICORN}'"


try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingPackageError(_unknown("uvicorn.protocols.http.h11_impl.H11Protocol")) from error

CONNECTION_CLOSE = (b"connection", b"close")
_SHUTDOWN_GRACE = 1.0  # seconds at shutdown, for a request that is sent but not yet received
_PROBE_SECONDS = 1.0  # between two probes whether a half-closed client is still there
_MIN_PROGRESS = 1 << 16  # bytes of a response that a client must receive in `send_seconds`
_MAX_DISCARDED = 16  # times the limit of a body: bytes of a rejected one that are discarded
_REQUIRED = (
    "app_state",
    "conn",
    "connection_lost",
    "connection_made",
    "connections",
    "cycle",
    "data_received",
    "flow",
    "loop",
    "on_response_complete",
    "pause_writing",
    "resume_writing",
    "send_400_response",
    "server_state",
    "shutdown",
    "timeout_keep_alive_task",
    "transport",
)
_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", None)


class LingeringTransport:
    """A transport whose close is a lingering close by the protocol."""

    def __init__(self, transport: asyncio.Transport, protocol: "TimeoutH11Protocol") -> None:
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- everything else is the transport's
        return getattr(self._transport, name)

    def close(self) -> None:
        """Close the connection once the client can have read its response."""
        self._protocol.close_lingering(self._transport)

    def is_closing(self) -> bool:
        """Return whether nothing more can be sent."""
        return self._protocol.lingering or self._transport.is_closing()


class TimeoutH11Protocol(H11Protocol):
    """One connection."""

    limits: Limits
    draining: Callable[[], bool]
    """Returns whether the server is shutting down."""
    lingering = False
    _half_closed = False  # the client sends no more
    _discarded = 0
    _unsent = 0  # bytes of the response in the buffer at the last check
    _header_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _probe_timer: asyncio.TimerHandle | None = None
    _delivery_timer: asyncio.TimerHandle | None = None
    _shutdown_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for headers."""
        transport.set_write_buffer_limits(high=0)  # so that pause_writing reports every unsent byte
        if _NOTSENT_LOWAT is not None:  # and the system does not buffer megabytes
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, _MIN_PROGRESS)
        super().connection_made(LingeringTransport(transport, self))  # type: ignore[arg-type]
        self.app_state = {**self.app_state, IS_CLOSING: self.transport.is_closing}
        if len(self.connections) > self.limits.connections:
            self.app_state[OVER_LIMIT] = True
        self._wait_for_headers()
        if self.draining():  # accepted while the socket was being closed
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timeouts."""
        timers = (
            self._header_timer,
            self._send_timer,
            self._probe_timer,
            self._delivery_timer,
            self._shutdown_timer,
        )
        for timer in timers:
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    # Receiving.

    def data_received(self, data: bytes) -> None:
        """Stop the timeout for headers once they are complete."""
        if self.lingering:
            self._discarded += len(data)
            if self._discarded > _MAX_DISCARDED * self.limits.body_bytes:
                self.transport.abort()
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_header_timer()
            self._set_default_headers()
        elif self._header_timer is None and self.timeout_keep_alive_task is None:
            self._wait_for_headers()  # the beginning of a next request

    def _wait_for_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.limits.header_seconds, self._header_timeout)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _header_timeout(self) -> None:
        if not self.transport.is_closing() and self.conn.our_state is h11.IDLE:
            seconds = self.limits.header_seconds
            self._refuse(408, f"the headers were not received within {seconds:g} seconds")

    def eof_received(self) -> bool:  # type: ignore[override]
        """Respond to a client that sends no more; reject what cannot become a request."""
        self._half_closed = True
        if self.lingering:
            return False
        mine, theirs = self.conn.our_state, self.conn.their_state
        if theirs is h11.SEND_BODY and mine is h11.SEND_RESPONSE:
            self._refuse(400, "the body ended before it was complete")
        elif theirs is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(400, "the headers ended before they were complete")
        elif self._responding:
            self._probe_timer = self._probe_timer or self.loop.call_later(
                _PROBE_SECONDS, self._probe_client
            )
            return True
        return False

    def _probe_client(self) -> None:
        """Send "100 Continue" to find out whether a half-closed client is still there.

        A client that is gone and one that only sends no more look alike until one writes to them.
        """
        waits = self.conn.our_state is h11.SEND_RESPONSE and not self.transport.is_closing()
        if waits and self.conn.their_http_version != b"1.0":
            going_on = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            self.transport.write(self.conn.send(going_on) or b"")
            self._probe_timer = self.loop.call_later(_PROBE_SECONDS, self._probe_client)

    # Sending.

    @property
    def _responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _set_default_headers(self) -> None:
        """Announce "Connection: close" if the response is sent while its request still arrives."""
        if self._responding:
            last = self.conn.their_state is h11.SEND_BODY or OVER_LIMIT in self.app_state
            usual = self.server_state.default_headers
            self.cycle.default_headers = (
                [*usual, CONNECTION_CLOSE] if last or self.draining() else usual
            )

    def on_response_complete(self) -> None:
        """Continue with the next request, if there can be one."""
        if self._delivery_timer is not None:
            self._delivery_timer.cancel()
            self._delivery_timer = None
        super().on_response_complete()
        if self._responding:
            self._set_default_headers()
        elif self._half_closed:
            self.transport.close()

    def pause_writing(self) -> None:
        """Start the timeouts for a part of the response, and for all of it."""
        super().pause_writing()
        if self._delivery_timer is None:
            seconds = self.limits.delivery_seconds
            self._delivery_timer = self.loop.call_later(seconds, self.transport.abort)
        self._unsent = self.transport.get_write_buffer_size()
        self._send_timer = self.loop.call_later(self.limits.send_seconds, self._check_progress)

    def resume_writing(self) -> None:
        """Stop the timeout for a part of the response: the client has received it."""
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _check_progress(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left > self._unsent - _MIN_PROGRESS:
            self.transport.abort()
        else:
            self._unsent = left
            self._send_timer = self.loop.call_later(self.limits.send_seconds, self._check_progress)

    def send_400_response(self, msg: str) -> None:
        """Respond in one sentence to what is not HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(400, "not valid HTTP/1.1, or the headers are too long")
        else:  # too late for a response
            self.transport.close()

    def _refuse(self, status: int, sentence: str) -> None:
        path = self.cycle.scope["path"] if self._responding else ""
        body = bytes(error_response(path, HTTPException(status, sentence)).body)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            CONNECTION_CLOSE,
        ]
        if self._responding and self.cycle.scope["method"] == "HEAD":
            body = b""  # the response to HEAD has only the headers
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        if self._responding:  # the app must not respond as well
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    # Closing.

    def close_lingering(self, transport: asyncio.Transport) -> None:
        """Close a connection (a lingering close).

        If it were closed while the client is sending, it would be reset, and the client might never
        see the response. So close our half first, and discard what the client still sends.
        """
        all_received = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
        if self._half_closed or (all_received and not self.conn.trailing_data[0]):
            transport.close()
        elif not self.lingering and not transport.is_closing():
            self.lingering = True
            self._stop_header_timer()
            self._header_timer = self.loop.call_later(self.limits.body_seconds, transport.abort)
            try:
                transport.write_eof()
            except OSError:  # the client has closed it
                transport.abort()
            else:
                self.flow.resume_reading()

    def shutdown(self) -> None:
        """Respond to the current request, announce the close, and wait for what is on its way.

        A client that has not received its response in time is disconnected.
        """
        if self._shutdown_timer is None:
            self._shutdown_timer = self.loop.call_later(
                self.limits.shutdown_seconds, self.transport.abort
            )
        if self._responding:
            self._set_default_headers()
            super().shutdown()
        else:
            self.loop.call_later(_SHUTDOWN_GRACE, self._end)

    def _end(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()


def bind_protocol(limits: Limits, draining: Callable[[], bool]) -> type[TimeoutH11Protocol]:
    """Return the protocol class of one server."""
    _check_uvicorn()
    return type(
        "Protocol", (TimeoutH11Protocol,), {"limits": limits, "draining": staticmethod(draining)}
    )


def _check_uvicorn() -> None:
    """Raise an error for a uvicorn without the parts that this file needs."""
    known = {*dir(H11Protocol), *H11Protocol.__init__.__code__.co_names}
    missing = [name for name in _REQUIRED if name not in known]
    if missing:
        raise MissingPackageError(_unknown(f"H11Protocol.{missing[0]}"))
