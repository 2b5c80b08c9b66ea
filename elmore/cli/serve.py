"""elmore serve [MODEL]: an HTTP API, and a page to explore in a browser."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elmore.cli.options import DefaultModelArgument, Device, Precision
from elmore.serve.limits import MIN_UNSENT_BYTES, Limits

TOKEN = "ELMORE_TOKEN"  # noqa: S105 -- the name of the variable
_USUAL = Limits()


def _limit(about: str, *, least: int = 1) -> Any:  # noqa: ANN401 -- typer's own
    return typer.Option(min=least, help=about, rich_help_panel="Limits")


def _seconds(about: str) -> Any:  # noqa: ANN401 -- typer's own
    return typer.Option(min=0.001, help=about, rich_help_panel="Limits")


def serve(
    model: DefaultModelArgument = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; 0.0.0.0 serves other machines too and needs a token."
        ),
    ] = ("127.0.0.1"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free port.")
    ] = 8000,
    index: Annotated[
        Path | None,
        typer.Option(help="Index for /neighbors, built by `elmore neighbors`."),
    ] = None,
    precision: Precision = "exact",
    device: Device = "auto",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"File with the token that clients must send; or set {TOKEN}.", show_default="none"
        ),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Serve other machines without a token.")
    ] = False,
    max_body_bytes: Annotated[int, _limit("Maximum bytes of a request body.")] = _USUAL.body_bytes,
    max_texts: Annotated[int, _limit("Maximum texts of a request.")] = _USUAL.texts,
    max_tokens: Annotated[int, _limit("Maximum tokens of all texts of a request.")] = _USUAL.tokens,
    max_queue_tokens: Annotated[
        int, _limit("Maximum tokens in the queue; above it, requests get 429.")
    ] = _USUAL.queue_tokens,
    max_unsent_bytes: Annotated[
        int,
        _limit(
            "Maximum bytes of unsent responses; above it, requests get 503.", least=MIN_UNSENT_BYTES
        ),
    ] = _USUAL.unsent_bytes,
    max_connections: Annotated[
        int, _limit("Maximum number of open connections.")
    ] = _USUAL.connections,
    body_seconds: Annotated[
        float, _seconds("Time for a client to send a body.")
    ] = _USUAL.body_seconds,
    response_seconds: Annotated[
        float, _seconds("Time from the end of a body to the response.")
    ] = _USUAL.response_seconds,
    delivery_seconds: Annotated[
        float, _seconds("Time for a client to receive all of its response.")
    ] = _USUAL.delivery_seconds,
    idle_seconds: Annotated[
        float, _seconds("Time after which an idle connection is closed.")
    ] = _USUAL.idle_seconds,
    shutdown_seconds: Annotated[
        float, _seconds("Time for clients to receive their responses at shutdown.")
    ] = _USUAL.shutdown_seconds,
    hang_seconds: Annotated[
        float, _seconds("Time in one call after which /health reports the worker as hung.")
    ] = _USUAL.hang_seconds,
) -> None:
    """Serve vectors, scores and neighbours over HTTP, and a page at / to explore them.

    Ctrl-C or SIGTERM shuts it down after the accepted requests are answered. Every request is
    logged to stderr as a line of JSON.
    """
    from elmore.cli.progress import show_download
    from elmore.embed import networks
    from elmore.embed.loading import load
    from elmore.errors import ConfigError
    from elmore.probe.neighbors.index import OccurrenceIndex

    try:
        from elmore.serve import app, engine, logs, server
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}: pip install 'elmore[serve]'") from error

    limits = Limits(
        body_bytes=max_body_bytes,
        texts=max_texts,
        tokens=max_tokens,
        queue_tokens=max_queue_tokens,
        unsent_bytes=max_unsent_bytes,
        connections=max_connections,
        body_seconds=body_seconds,
        response_seconds=response_seconds,
        delivery_seconds=delivery_seconds,
        idle_seconds=idle_seconds,
        shutdown_seconds=shutdown_seconds,
        hang_seconds=hang_seconds,
    )
    if hang_seconds < response_seconds:
        raise ConfigError(
            f"--hang-seconds {hang_seconds:g} is less than --response-seconds "
            f"{response_seconds:g}: a worker would count as hung while clients still wait for it; "
            "raise --hang-seconds"
        )
    token = _token(token_file)
    if token is not None and no_token:
        token_source = token_file or TOKEN
        raise ConfigError(f"--no-token, but {token_source} holds a token; leave one of them out")
    loopback_only = token is None and not no_token
    with server.bind_socket(host, port, loopback_only=loopback_only) as listener:
        with show_download() as progress:
            embedder = load(*(model or []), device=device, precision=precision, progress=progress)
        if embedder.bundle.softmax is not None:
            networks.move(embedder.bundle.softmax, embedder.device)
        occurrences = None if index is None else OccurrenceIndex.open(index, embedder)
        application = app.create(engine.Engine(embedder, occurrences), limits=limits, token=token)
        logs.log_to_stderr()
        print(f"listening on {server.base_url(listener)}", file=sys.stderr, flush=True)
        # The worker thread releases the GIL often, and would wait 5 ms by default to get it back.
        sys.setswitchinterval(0.0005)
        server.serve(server.make_server(application, limits), listener)


def _token(file: Path | None) -> str | None:
    """Return the token from a file or the environment; a command line is visible to all users."""
    from elmore.errors import ConfigError

    if file is None and TOKEN not in os.environ:
        return None
    source = str(file) if file else TOKEN
    content = file.read_text(encoding="utf-8", errors="replace") if file else os.environ[TOKEN]
    token = content.strip()
    if not token.isascii() or not token.isprintable() or len(token) < 8 or " " in token:
        raise ConfigError(
            f"{source}: a token must have at least 8 printable ASCII characters and no spaces"
        )
    return token
