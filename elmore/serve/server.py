"""Bind the socket, and run uvicorn until a signal ends it."""

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


def bind_socket(host: str, port: int, *, loopback_only: bool = False) -> socket.socket:
    """Bind the address before the model is loaded, so that a port in use is reported at once.

    Early clients wait in the backlog. With `loopback_only`, an address that other machines can
    reach is refused.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if loopback_only and not ipaddress.ip_address(address[0]).is_loopback:
            raise ConfigError(
                f"--host {host} can be reached by other machines, and there is no token; set "
                "ELMORE_TOKEN or --token-file, or pass --no-token to serve everybody"
            )
        # With the protocol given, asyncio sets TCP_NODELAY on the connections.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else "not a host name"
        raise ConfigError(
            f"cannot listen on {host}:{port} ({reason}); choose another --host or --port"
        ) from error
    return listener


def base_url(listener: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: FastAPI, limits: Limits) -> uvicorn.Server:
    """Return a uvicorn server for the app."""
    config = uvicorn.Config(
        app,
        http=bind_protocol(limits, lambda: server.should_exit),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
        # Connections are closed earlier; this is for work that continues without one.
        timeout_graceful_shutdown=math.ceil(limits.shutdown_seconds) + _GRACE,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=32768,
    )
    server = uvicorn.Server(config)
    return server


def serve(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, and return normally then.

    uvicorn raises the signal again when it has shut down, for the handler that was installed
    before. That handler is ours, so the process does not die from it.
    """

    def end(*_: object) -> None:
        server.should_exit = True

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, end) for number in signals}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
