"""elmore serve [MODEL]: an HTTP API, and a page to explore in a browser."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elmore.serve.limits import Limits

if TYPE_CHECKING:
    from elmore.embed.embedder import Embedder
    from elmore.serve.engine import Uses

TOKEN = "ELMORE_TOKEN"  # noqa: S105 -- the name of the variable
_USUAL = Limits()


def _most(about: str) -> Any:  # noqa: ANN401 -- typer's own
    return typer.Option(min=1, help=about, rich_help_panel="Limits")


def _seconds(about: str) -> Any:  # noqa: ANN401 -- typer's own
    return typer.Option(min=0.001, help=about, rich_help_panel="Limits")


def serve(
    model: Annotated[
        list[str] | None,
        typer.Argument(help="a name, a folder, a zip …", show_default="the bundled English model"),
    ] = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 to let other machines in, with a token")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free")] = 8000,
    index: Annotated[
        Path | None, typer.Option(help="uses of words, for /neighbors; see elmore neighbors")
    ] = None,
    precision: Annotated[
        Literal["exact", "fast"], typer.Option(help="fast: bf16 or int8 where quicker")
    ] = "exact",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"a file with the token to ask for; or set {TOKEN}", show_default="none"),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="let other machines in without a token")
    ] = False,
    max_body_bytes: Annotated[int, _most("of the body of a request")] = _USUAL.body_bytes,
    max_texts: Annotated[int, _most("in a request")] = _USUAL.texts,
    max_tokens: Annotated[int, _most("in all texts of a request")] = _USUAL.tokens,
    max_queue_tokens: Annotated[
        int, _most("that wait; above that, requests are refused")
    ] = _USUAL.queue_tokens,
    max_unsent_bytes: Annotated[
        int, _most("of answers that are not sent yet; above that, requests are refused")
    ] = _USUAL.unsent_bytes,
    max_connections: Annotated[int, _most("at a time")] = _USUAL.connections,
    body_seconds: Annotated[float, _seconds("for a client to send a body")] = _USUAL.body_seconds,
    answer_seconds: Annotated[
        float, _seconds("from the end of a body to the answer")
    ] = _USUAL.answer_seconds,
    delivery_seconds: Annotated[
        float, _seconds("for a client to take all of its answer; then it is cut off")
    ] = _USUAL.delivery_seconds,
    idle_seconds: Annotated[
        float, _seconds("that a connection without a request is kept")
    ] = _USUAL.idle_seconds,
    end_seconds: Annotated[
        float, _seconds("for clients to take their answers when the server ends")
    ] = _USUAL.end_seconds,
    hang_seconds: Annotated[
        float, _seconds("of one piece of work after which /health says that the worker hangs")
    ] = _USUAL.hang_seconds,
) -> None:
    """Answer over HTTP: vectors, scores and neighbours, and a page at / to explore them.

    Ctrl-C or SIGTERM ends it: what was accepted is still answered. A line of JSON on stderr tells
    of every request.
    """
    from elmore.cli.progress import showing_download
    from elmore.embed.loading import load
    from elmore.errors import ConfigError

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
        answer_seconds=answer_seconds,
        delivery_seconds=delivery_seconds,
        idle_seconds=idle_seconds,
        end_seconds=end_seconds,
        hang_seconds=hang_seconds,
    )
    if hang_seconds < answer_seconds:
        raise ConfigError(
            f"--hang-seconds {hang_seconds:g} is less than --answer-seconds {answer_seconds:g}: a "
            "worker would count as hung while clients still wait for it; raise --hang-seconds"
        )
    token = _token(token_file)
    if token is not None and no_token:
        place = token_file or TOKEN
        raise ConfigError(f"--no-token, but {place} holds a token; leave one of them out")
    loopback_only = token is None and not no_token
    with server.listening(host, port, loopback_only=loopback_only) as found:
        with showing_download() as progress:
            embedder = load(*(model or []), device=device, precision=precision, progress=progress)
        if embedder.bundle.softmax is not None:
            embedder.bundle.softmax.to(embedder.device)
        uses = None if index is None else _opened(index, embedder)
        application = app.create(engine.Engine(embedder, uses), limits=limits, token=token)
        logs.to_stderr()
        print(f"listening on {server.address(found)}", file=sys.stderr, flush=True)
        # The thread that reads lends Python out often; by default it waits 5 ms to have it back.
        sys.setswitchinterval(0.0005)
        server.run(server.server(application, limits), found)


def _opened(folder: Path, embedder: "Embedder") -> "Uses":
    from elmore.probe.neighbors import UseIndex
    from elmore.serve.engine import Uses
    from elmore.text import target_word

    return Uses(UseIndex.open(folder, embedder), target_word.parse_target)


def _token(file: Path | None) -> str | None:
    """Read the token from a file or the environment: a command line can be seen by all."""
    from elmore.errors import ConfigError

    if file is None and TOKEN not in os.environ:
        return None
    place = str(file) if file else TOKEN
    found = file.read_text(encoding="utf-8", errors="replace") if file else os.environ[TOKEN]
    token = found.strip()
    if not token.isascii() or not token.isprintable() or len(token) < 8 or " " in token:
        raise ConfigError(f"{place}: a token has 8 letters or more, ASCII and without spaces")
    return token
