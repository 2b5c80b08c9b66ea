"""A socket to listen on, and a uvicorn that ends well."""

import ipaddress
import math
import signal
import socket

import uvicorn
from fastapi import FastAPI

from elmore.errors import ConfigError
from elmore.serve.limits import Limits
from elmore.serve.protocol import bind_protocol

_BACKLOG = 2048
_GRACE = 5  # seconds


def listening(host: str, port: int, *, loopback_only: bool = False) -> socket.socket:
    """Take the address before the model is loaded: a port in use is told at once.

    Who comes early waits at the door. With `loopback_only`, an address that other machines can
    reach is refused.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if loopback_only and not ipaddress.ip_address(address[0]).is_loopback:
            raise ConfigError(
                f"--host {host} lets other machines in, and there is no token; set ELMORE_TOKEN or "
                "--token-file, or say --no-token to serve everybody"
            )
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


def server(app: FastAPI, limits: Limits) -> uvicorn.Server:
    """Give a server for the app."""
    config = uvicorn.Config(
        app,
        http=bind_protocol(limits, lambda: found.should_exit),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
        # Connections are cut off before; this is for work that goes on without one.
        timeout_graceful_shutdown=math.ceil(limits.end_seconds) + _GRACE,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=32768,
    )
    found = uvicorn.Server(config)
    return found


def run(found: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM comes, which is a good end.

    When uvicorn has ended it sends itself the signal again, for whoever listened before. That is
    us, so the process does not die of it.
    """

    def end(*_: object) -> None:
        found.should_exit = True

    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, end) for number in wanted}
    try:
        found.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
