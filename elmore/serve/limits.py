"""What stands at the door: who may come in, how large and how slow a body may be.

An ASGI middleware around the app. It also counts and logs every request by the name of its route,
never by its path: a path is the user's text too.
"""

import hmac
import logging
import time
from asyncio import timeout
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse

from elmore.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)
_DRAINED = 16  # times the limit: so much of a giant body is read away, so that its sender listens
WENT_AWAY = 499


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one request, and all together, may ask for."""

    body_bytes: int = 1 << 20
    body_seconds: float = 20
    """To send a body in."""
    header_seconds: float = 10
    """To send the headers in."""
    answer_seconds: float = 120
    """From the end of the body to the answer."""
    tokens: int = 8192
    """In all texts of a request."""
    queue_tokens: int = 32768
    batch_tokens: int = 4096


class Door:
    """Let in what may come in; answer all else with one sentence."""

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
        metrics: Metrics,
        token: str | None,
        open_to_all: set[str],
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self._token = token.encode() if token else None
        self._open = open_to_all

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, and note that it was answered."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        status = WENT_AWAY

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_SAFE]
            await send(message)

        scope["noted"] = {}
        self.metrics.in_flight += 1
        try:
            await self._enter(scope, receive, noted)
        except Exception:
            status = 500
            raise
        finally:
            self.metrics.in_flight -= 1
            route = getattr(scope.get("route"), "path", "unknown")
            seconds = time.perf_counter() - start
            self.metrics.request(route, status, seconds)
            fields = {"method": scope["method"], "route": route, "status": status}
            fields |= {"ms": round(1000 * seconds, 1), **scope["noted"]}
            _log.info("request", extra={"fields": fields})

    async def _enter(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        body = _Body(receive, self.limits)
        try:
            if self._token and scope["path"] not in self._open:
                _check_token(headers.get(b"authorization", b""), self._token)
            if scope["method"] == "POST":
                await body.check_length(headers)
        except HTTPException as refusal:
            await refused(refusal)(scope, body, send)
            return
        await self.app(scope, body, send)


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
        message = await self._next()
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._limits.body_bytes:
            await self._drain()
            raise too_large(self._limits.body_bytes)
        return message

    async def _next(self) -> Message:
        try:
            async with timeout(self._end - time.monotonic()):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(
                408,
                f"the body did not come within {self._limits.body_seconds:g} seconds",
                {"Connection": "close"},
            ) from error
        self._complete = not message.get("more_body", False)
        return message

    async def check_length(self, headers: dict[bytes, bytes]) -> None:
        """Refuse at once what says of itself that it is too long."""
        length = headers.get(b"content-length", b"0")
        most = self._limits.body_bytes
        if not length.isdigit() or int(length[:20]) <= most:
            return
        waits = b"100-continue" in headers.get(b"expect", b"").lower()
        if not waits and int(length[:20]) <= _DRAINED * most:
            await self._drain()
        raise too_large(most)

    async def _drain(self) -> None:
        """Read the rest away: who is cut off while sending may never see the answer."""
        while not self._complete and self._bytes < _DRAINED * self._limits.body_bytes:
            self._bytes += len((await self._next()).get("body", b""))


_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


def refused(refusal: HTTPException) -> JSONResponse:
    """Give a refusal as an answer."""
    headers = dict(refusal.headers or {})
    return JSONResponse({"detail": refusal.detail}, refusal.status_code, headers)


def too_large(most: int) -> HTTPException:
    """Say that a body is too large."""
    sentence = (
        f"a body may have {most} bytes, this one has more; send the texts in several requests"
    )
    return HTTPException(413, sentence, {"Connection": "close"})


def _check_token(given: bytes, expected: bytes) -> None:
    scheme, _, token = given.partition(b" ")
    right = hmac.compare_digest(token.strip(), expected)
    if scheme.lower() != b"bearer" or not right:
        raise HTTPException(
            401,
            "this server asks for a token: send the header 'Authorization: Bearer TOKEN'",
            {"WWW-Authenticate": "Bearer"},
        )
