"""A response whose body is computed while it is sent."""

import asyncio
from collections.abc import Iterator

from fastapi import Response
from starlette.types import Receive, Scope, Send

from elmore.serve.responses import Payload


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


class StreamedResponse(Response):
    """Sends a payload chunk by chunk, the next one when the client has received the last.

    Each chunk is computed in a thread, so that the event loop serves others meanwhile. Nothing more
    is computed once the client has disconnected.
    """

    def __init__(self, payload: Payload) -> None:
        super().__init__(None, media_type=payload.media_type)
        del self.headers["Content-Length"]  # of the empty body
        self.headers.update(payload.headers)
        self._chunks = payload.chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        disconnected = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            chunks = self._chunks()
            while not disconnected.done() and (chunk := await asyncio.to_thread(_next, chunks)):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if not disconnected.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            disconnected.cancel()


def _next(chunks: Iterator[bytes]) -> bytes:
    """Return the next chunk, empty at the end."""
    return next(chunks, b"")
