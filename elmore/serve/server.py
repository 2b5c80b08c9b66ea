"""A socket to listen on, and a uvicorn that ends well, and in time."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from elmore.errors import ConfigError
from elmore.serve.limits import Limits
from elmore.serve.protocol import GOODBYE, Patient

_BACKLOG = 2048


class Server(uvicorn.Server):
    """A server whose end by a signal is a good end, and comes."""

    def __init__(self, config: uvicorn.Config, *, end_seconds: float) -> None:
        super().__init__(config)
        self._end_seconds = end_seconds

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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, answer what was accepted, and cut off who has not taken it in time."""
        state = self.server_state
        state.default_headers = [*state.default_headers, GOODBYE]
        cutting = asyncio.get_running_loop().call_later(self._end_seconds, self._cut)
        await super().shutdown(sockets)
        cutting.cancel()

    def _cut(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def listening(host: str, port: int) -> socket.socket:
    """Take the address before the model is loaded: a port in use is told at once.

    Who comes early waits at the door.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)  # asyncio sends at once where it knows TCP
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(_BACKLOG)
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


def server(app: FastAPI, limits: Limits) -> Server:
    """Give a server for the app; `run(sockets=[…])` serves until a signal comes."""
    config = uvicorn.Config(
        app,
        http=type("Protocol", (Patient,), {"limits": limits}),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=32768,
    )
    return Server(config, end_seconds=limits.end_seconds)
