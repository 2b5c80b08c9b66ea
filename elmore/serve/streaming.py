"""A response whose body is computed while it is sent."""

import asyncio
from collections.abc import Iterator

from fastapi import Response
from starlette.types import Receive, Scope, Send

from elmore.serve.answers import Answer


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client goes away, or is cut off."""
    while (await receive())["type"] != "http.disconnect":
        pass


class StreamedResponse(Response):
    """Sends an answer piece by piece, the next one when the client has taken the last.

    Each piece is computed in a thread, so that the event loop serves others meanwhile. Nothing more
    is computed once the client is gone.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(None, media_type=answer.form)
        del self.headers["Content-Length"]  # that of no body
        self.headers.update(answer.headers)
        self._pieces = answer.pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        gone = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            pieces = self._pieces()
            while not gone.done() and (piece := await asyncio.to_thread(_next, pieces)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()


def _next(pieces: Iterator[bytes]) -> bytes:
    """Compute the next piece; no bytes when there is none."""
    return next(pieces, b"")
