"""ASGI middleware: authentication, limits of request bodies, metrics and the request log.

A request ends for it when its response is sent; until then the bytes of the response stay reserved.
Requests are counted and logged by route, never by path, because a path may contain user text, and
so may a method that HTTP does not have.
"""

import hmac
import logging
import time
from asyncio import timeout
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPMethod
from typing import Any

from fastapi import HTTPException

from elmore.serve.errors import CLIENT_CLOSED_REQUEST, ClientDisconnected, error_response
from elmore.serve.limits import Limits
from elmore.serve.metrics import Metrics
from elmore.serve.send_budget import Reservation, SendBudget

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OVER_LIMIT = "over_limit"
"""Key in the state of a connection above the limit."""
IS_CLOSING = "is_closing"
"""Key in the state of a connection: a function that returns whether nothing more can be sent."""

_log = logging.getLogger(__name__)
_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class AuthAndLimits:
    """Passes permitted requests to the app; answers all others with one sentence."""

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
        metrics: Metrics,
        unsent: SendBudget,
        token: str | None,
        routes: set[str],
        public_paths: set[str],
    ) -> None:
        self.app, self.limits, self.metrics, self.unsent = app, limits, metrics, unsent
        self._token = token.encode() if token else None
        self._routes, self._public_paths = routes, public_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, then count and log it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        sender = _ResponseSender(send, scope.get("state", {}).get(IS_CLOSING, lambda: False))
        status = CLIENT_CLOSED_REQUEST
        scope["log_fields"], scope["reservation"] = {}, Reservation(self.unsent)
        self.metrics.in_flight += 1
        try:
            await self._handle(scope, receive, sender)
            status = sender.status if sender.complete else CLIENT_CLOSED_REQUEST
        except Exception:
            status = 500
            raise
        finally:
            self.metrics.in_flight -= 1
            scope["reservation"].release()
            self._record(scope, status, time.perf_counter() - start)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope["path"]
        if route not in self._routes:
            route = getattr(scope.get("route"), "path", "unknown")  # one with a parameter
        self.metrics.request(route, status, seconds)
        method = scope["method"] if scope["method"] in HTTPMethod.__members__ else "unknown"
        fields = {"method": method, "route": route, "status": status}
        fields |= {"ms": round(1000 * seconds, 1), **scope["log_fields"]}
        _log.info("request", extra={"fields": fields})

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _LimitedBody(receive, self.limits)
        try:
            self._check(scope)
        except HTTPException as error:
            await error_response(scope["path"], error)(scope, body, send)
            return
        await self.app(scope, body, send)

    def _check(self, scope: Scope) -> None:
        """Raise HTTPException for what the headers alone decide."""
        headers = dict(scope["headers"])
        if OVER_LIMIT in scope.get("state", {}):
            sentence = "too many open connections; retry in a second"
            raise HTTPException(503, sentence, {"Retry-After": "1"})
        if self._token and scope["path"] not in self._public_paths:
            _check_token(headers.get(b"authorization", b""), self._token)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self.limits.body_bytes:
            raise _too_large(self.limits.body_bytes)


class _ResponseSender:
    """Sends a response; it is complete when the client has received all of it."""

    def __init__(self, send: Send, is_closing: Callable[[], bool]) -> None:
        self._send, self._is_closing = send, is_closing
        self.status = CLIENT_CLOSED_REQUEST
        self.complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), *_SECURITY_HEADERS]
            await self._send(message)
            return
        if message.get("body"):
            await self._send({**message, "more_body": True})
        if not message.get("more_body", False):
            # An empty part waits until the client has received the others, or is disconnected.
            await self._send({"type": message["type"], "body": b"", "more_body": True})
            self.complete = not self._is_closing()
            await self._send({"type": message["type"], "body": b"", "more_body": False})


class _LimitedBody:
    """Receives a request body, within its limits of size and time."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._bytes = 0
        self._end = time.monotonic() + limits.body_seconds
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:  # the only message left is a disconnect
            return await self._receive()
        try:
            async with timeout(self._end - time.monotonic()):
                message = await self._receive()
        except TimeoutError as error:
            sentence = f"the body was not received within {self._limits.body_seconds:g} seconds"
            raise HTTPException(408, sentence) from error
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        self._complete = not message.get("more_body", False)
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._limits.body_bytes:
            raise _too_large(self._limits.body_bytes)
        return message


def _too_large(most: int) -> HTTPException:
    sentence = f"the body exceeds the limit of {most} bytes; send the texts in several requests"
    return HTTPException(413, sentence)


def _check_token(given: bytes, expected: bytes) -> None:
    scheme, _, token = given.partition(b" ")
    right = hmac.compare_digest(token.strip(), expected)
    if scheme.lower() != b"bearer" or not right:
        raise HTTPException(
            401,
            "this server requires a token: send the header 'Authorization: Bearer TOKEN'",
            {"WWW-Authenticate": "Bearer"},
        )
