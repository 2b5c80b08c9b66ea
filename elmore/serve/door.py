"""What stands at the door: who may come in, how large and how slow a body may be.

An ASGI middleware around the app. A request is over for it when its answer is sent: until then the
bytes of the answer stay reserved. It also counts and logs every request by the name of its route,
never by its path: a path is the user's text too.
"""

import hmac
import logging
import time
from asyncio import timeout
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import HTTPException

from elmore.serve.limits import Limits
from elmore.serve.metrics import Metrics
from elmore.serve.refusals import WENT_AWAY, ClientGone, refused
from elmore.serve.unsent import Reservation, UnsentBytes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CROWDED = "crowded"
"""In the state of a connection that is one too many."""

_log = logging.getLogger(__name__)
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class Door:
    """Let in what may come in; answer all else with one sentence."""

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
        metrics: Metrics,
        unsent: UnsentBytes,
        token: str | None,
        routes: set[str],
        open_to_all: set[str],
    ) -> None:
        self.app, self.limits, self.metrics, self.unsent = app, limits, metrics, unsent
        self._token = token.encode() if token else None
        self._routes, self._open = routes, open_to_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and note that it was answered."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        answer = _Sending(send)
        status = WENT_AWAY
        scope["noted"], scope["unsent"] = {}, Reservation(self.unsent)
        self.metrics.in_flight += 1
        try:
            await self._enter(scope, receive, answer)
            status = answer.status if answer.complete else WENT_AWAY
        except Exception:
            status = 500
            raise
        finally:
            self.metrics.in_flight -= 1
            scope["unsent"].release()
            self._note(scope, status, time.perf_counter() - start)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope["path"] if scope["path"] in self._routes else "unknown"
        self.metrics.request(route, status, seconds)
        fields = {"method": scope["method"], "route": route, "status": status}
        fields |= {"ms": round(1000 * seconds, 1), **scope["noted"]}
        _log.info("request", extra={"fields": fields})

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(receive, self.limits)
        try:
            self._check(scope)
        except HTTPException as refusal:
            await refused(refusal)(scope, body, send)
            return
        await self.app(scope, body, send)

    def _check(self, scope: Scope) -> None:
        """Refuse what needs no look at the body."""
        headers = dict(scope["headers"])
        if CROWDED in scope.get("state", {}):
            sentence = "too many connections are open already; come again in a second"
            raise HTTPException(503, sentence, {"Retry-After": "1"})
        if self._token and scope["path"] not in self._open:
            _check_token(headers.get(b"authorization", b""), self._token)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self.limits.body_bytes:
            raise _too_large(self.limits.body_bytes)


class _Sending:
    """The messages of an answer, which end when the client has taken all of it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = WENT_AWAY
        self.complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), *_SAFE]
            await self._send(message)
            return
        if message.get("body"):
            await self._send({**message, "more_body": True})
        if not message.get("more_body", False):  # this waits until what was sent is taken
            await self._send({"type": message["type"], "body": b"", "more_body": False})
            self.complete = True


class _Body:
    """The messages of a request's body, counted and timed while they come."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._bytes = 0
        self._end = time.monotonic() + limits.body_seconds
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:  # what comes now is that the client went away
            return await self._receive()
        try:
            async with timeout(self._end - time.monotonic()):
                message = await self._receive()
        except TimeoutError as error:
            sentence = f"the body did not come within {self._limits.body_seconds:g} seconds"
            raise HTTPException(408, sentence) from error
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._complete = not message.get("more_body", False)
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._limits.body_bytes:
            raise _too_large(self._limits.body_bytes)
        return message


def _too_large(most: int) -> HTTPException:
    sentence = (
        f"a body may have {most} bytes, this one has more; send the texts in several requests"
    )
    return HTTPException(413, sentence)


def _check_token(given: bytes, expected: bytes) -> None:
    scheme, _, token = given.partition(b" ")
    right = hmac.compare_digest(token.strip(), expected)
    if scheme.lower() != b"bearer" or not right:
        raise HTTPException(
            401,
            "this server asks for a token: send the header 'Authorization: Bearer TOKEN'",
            {"WWW-Authenticate": "Bearer"},
        )
