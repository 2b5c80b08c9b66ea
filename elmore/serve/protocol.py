"""HTTP/1.1 as uvicorn speaks it, made impatient with clients and careful at the end.

Beyond what it does already: headers that do not come, and answers that are not taken, are not
waited for; what is no HTTP is told so in one sentence; who says no more is still answered; and a
connection is closed so that its last answer can be read.

This is the one file that builds on what uvicorn does not document. Its options do the rest
(`server.py`), but not these: `limit_concurrency` refuses in plain text, uncounted, also those who
were there before; there is no deadline for headers or for answers; and
`timeout_graceful_shutdown` ends tasks and leaves their connections open.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn

from elmore.errors import MissingPackageError
from elmore.serve.door import CROWDED
from elmore.serve.limits import Limits

UVICORN = "uvicorn>=0.32,<0.55"
"""The versions this was tested with, as pyproject.toml asks for them."""


def _unknown(name: str) -> str:
    return f"uvicorn {uvicorn.__version__} has no {name}: pip install '{UVICORN}'"


try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingPackageError(_unknown("uvicorn.protocols.http.h11_impl.H11Protocol")) from error

GOODBYE = (b"connection", b"close")
_LAST_CALL = 1.0  # seconds at the end, for a request that has been sent and not been read
_PULSE = 1.0  # seconds between two questions whether anybody waits for the answer
_PART = 1 << 16  # bytes of an answer that a client takes at least while we wait
_READ_AWAY = 16  # times the limit of a body: so much of one that is refused is read away
_BUILT_ON = (
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
_UNSENT = getattr(socket, "TCP_NOTSENT_LOWAT", None)


class _Goodbye:
    """A transport that is closed by the protocol, which knows what the client still sends."""

    def __init__(self, transport: asyncio.Transport, protocol: "Patient") -> None:
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- all else is the transport's
        return getattr(self._transport, name)

    def close(self) -> None:
        self._protocol.hang_up(self._transport)

    def is_closing(self) -> bool:
        return self._protocol.hung_up or self._transport.is_closing()


class Patient(H11Protocol):
    """One connection."""

    limits: Limits
    draining: Callable[[], bool]
    """Says whether the server is ending."""
    hung_up = False
    _heard_all = False  # the client has closed its half
    _read_away = 0
    _left = 0  # bytes of the answer that were not taken when we looked
    _reading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _asking: asyncio.TimerHandle | None = None
    _delivering: asyncio.TimerHandle | None = None
    _draining: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for headers."""
        transport.set_write_buffer_limits(high=0)  # so that we are told whatever is not taken
        if _UNSENT is not None:  # and so that the system does not take megabytes at a time
            found = transport.get_extra_info("socket")
            found.setsockopt(socket.IPPROTO_TCP, _UNSENT, _PART)
        super().connection_made(_Goodbye(transport, self))  # type: ignore[arg-type]
        if len(self.connections) > self.limits.connections:
            self.app_state = {**self.app_state, CROWDED: True}
        self._wait_for_headers()
        if self.draining():  # it was accepted while the door was being shut
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for anything."""
        timers = self._reading, self._writing, self._asking, self._delivering, self._draining
        for timer in timers:
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    # What comes.

    def data_received(self, data: bytes) -> None:
        """Go on waiting until the headers are complete."""
        if self.hung_up:
            self._read_away += len(data)
            if self._read_away > _READ_AWAY * self.limits.body_bytes:
                self.transport.abort()
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_reading_timer()
            self._choose_headers()
        elif self._reading is None and self.timeout_keep_alive_task is None:
            self._wait_for_headers()  # a part of the headers of a next request

    def _wait_for_headers(self) -> None:
        self._reading = self.loop.call_later(self.limits.header_seconds, self._too_slow)

    def _stop_reading_timer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing() and self.conn.our_state is h11.IDLE:
            seconds = self.limits.header_seconds
            self._refuse(408, f"the headers did not come within {seconds:g} seconds")

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer who says no more; what can no longer become a request is refused."""
        self._heard_all = True
        if self.hung_up:
            return False
        mine, theirs = self.conn.our_state, self.conn.their_state
        if theirs is h11.SEND_BODY and mine is h11.SEND_RESPONSE:
            self._refuse(400, "the body ended before it was complete")
        elif theirs is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(400, "the headers ended before they were complete")
        elif self._answering:
            self._asking = self._asking or self.loop.call_later(_PULSE, self._ask)
            return True
        return False

    def _ask(self) -> None:
        """Find out whether anybody waits for the answer.

        Who is gone and who only says no more look alike, until one writes to them.
        """
        waits = self.conn.our_state is h11.SEND_RESPONSE and not self.transport.is_closing()
        if waits and self.conn.their_http_version != b"1.0":
            going_on = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            self.transport.write(self.conn.send(going_on) or b"")
            self._asking = self.loop.call_later(_PULSE, self._ask)

    # What goes.

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _choose_headers(self) -> None:
        """Say that an answer is the last, if it is given while its request still comes."""
        if self._answering:
            last = self.conn.their_state is h11.SEND_BODY or CROWDED in self.app_state
            usual = self.server_state.default_headers
            self.cycle.default_headers = [*usual, GOODBYE] if last or self.draining() else usual

    def on_response_complete(self) -> None:
        """Go on with the next request, if there can be one."""
        if self._delivering is not None:
            self._delivering.cancel()
            self._delivering = None
        super().on_response_complete()
        if self._answering:
            self._choose_headers()
        elif self._heard_all:
            self.transport.close()

    def pause_writing(self) -> None:
        """Begin to wait for the client to take a part of its answer, and in the end all of it."""
        super().pause_writing()
        if self._delivering is None:
            seconds = self.limits.delivery_seconds
            self._delivering = self.loop.call_later(seconds, self.transport.abort)
        self._left = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self.limits.send_seconds, self._is_it_taken)

    def resume_writing(self) -> None:
        """Stop waiting for that part: it is taken."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _is_it_taken(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left > self._left - _PART:
            self.transport.abort()
        else:
            self._left = left
            self._writing = self.loop.call_later(self.limits.send_seconds, self._is_it_taken)

    def send_400_response(self, msg: str) -> None:
        """Say in one sentence that this is no HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(400, "this is no HTTP/1.1, or its headers are too long")
        else:  # it is too late to say anything
            self.transport.close()

    def _refuse(self, status: int, sentence: str) -> None:
        body = json.dumps({"detail": sentence}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            GOODBYE,
        ]
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        if self._answering:  # by us, so the app has nobody to answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    # The end.

    def hang_up(self, transport: asyncio.Transport) -> None:
        """Close a connection.

        One that is closed while its client sends is reset, and a client may then never see the
        answer. So we say that we say no more, and for a while read away what it still sends.
        """
        all_said = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
        if self._heard_all or (all_said and not self.conn.trailing_data[0]):
            transport.close()
        elif not self.hung_up and not transport.is_closing():
            self.hung_up = True
            self._stop_reading_timer()
            self._reading = self.loop.call_later(self.limits.body_seconds, transport.abort)
            try:
                transport.write_eof()
            except OSError:  # the client has closed it
                transport.abort()
            else:
                self.flow.resume_reading()

    def shutdown(self) -> None:
        """Answer what is asked, say that it is the last, and wait for what is on its way.

        Who has not taken its answer in time is cut off.
        """
        if self._draining is None:
            self._draining = self.loop.call_later(self.limits.end_seconds, self.transport.abort)
        if self._answering:
            self._choose_headers()
            super().shutdown()
        else:
            self.loop.call_later(_LAST_CALL, self._end)

    def _end(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()


def bind_protocol(limits: Limits, draining: Callable[[], bool]) -> type[Patient]:
    """Give the protocol of one server."""
    _check_uvicorn()
    return type("Protocol", (Patient,), {"limits": limits, "draining": staticmethod(draining)})


def _check_uvicorn() -> None:
    """Refuse a uvicorn that lacks what this file builds on."""
    known = {*dir(H11Protocol), *H11Protocol.__init__.__code__.co_names}
    missing = [name for name in _BUILT_ON if name not in known]
    if missing:
        raise MissingPackageError(_unknown(f"H11Protocol.{missing[0]}"))
