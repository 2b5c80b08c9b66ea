"""Everything that is answered with something other than success: one sentence in `detail`."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from elmore.serve.batcher import QueueFull
from elmore.serve.worker import WorkerDied

WENT_AWAY = 499
_SHOWN = 40  # characters of what was sent, in a sentence about it


class ClientGone(HTTPException):
    """Nobody waits for the answer: its status is for the log and the metrics."""

    def __init__(self) -> None:
        super().__init__(WENT_AWAY, "the client went away")


def refused(refusal: HTTPException) -> JSONResponse:
    """Give a refusal as an answer."""
    headers = dict(refusal.headers or {})
    return JSONResponse({"detail": refusal.detail}, refusal.status_code, headers)


def install(app: FastAPI) -> None:
    """Answer every kind of trouble."""

    @app.exception_handler(StarletteHTTPException)
    async def refusal(request: Request, error: StarletteHTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == 404:
            detail = "there is nothing here; the routes are listed at /openapi.json"
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            detail = f"this route does not take {_shown(request.method)}, it takes {allowed}"
        return refused(HTTPException(error.status_code, detail, dict(error.headers or {})))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if not kind.endswith(("/json", "+json")):
            sentence = "the body must be JSON: send the header 'Content-Type: application/json'"
            return refused(HTTPException(415, sentence))
        errors = error.errors()
        first = errors[0]
        if first["type"] == "json_invalid":
            return refused(HTTPException(400, f"the body is not JSON: {_reason(first)}"))
        return refused(HTTPException(422, _sentence(errors)))

    @app.exception_handler(QueueFull)
    async def full(request: Request, error: QueueFull) -> Response:
        seconds = error.seconds
        sentence = f"too much is waiting already; come again in {seconds} s"
        return refused(HTTPException(429, sentence, {"Retry-After": str(seconds)}))

    @app.exception_handler(WorkerDied)
    async def died(request: Request, error: WorkerDied) -> Response:
        return refused(HTTPException(503, f"the worker has died ({error}); restart the server"))

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        return refused(HTTPException(500, "this is a fault of the server; its log says where"))


def _reason(error: dict[str, Any]) -> str:
    place = error.get("loc", ())
    where = f" at character {place[-1]}" if place and isinstance(place[-1], int) else ""
    said = error.get("ctx", {}).get("error", "it cannot be read")
    return f"{str(said).lower()}{where}"


def _sentence(errors: Sequence[dict[str, Any]]) -> str:
    """Say where, what was expected (by each side of a union) and what was found."""
    where = _place(errors[0])
    here = [error for error in errors if _place(error) == where]
    expected = ", or ".join(error["msg"][0].lower() + error["msg"][1:] for error in here)
    found = here[0].get("input")
    said = "" if isinstance(found, dict | list) else f", found {quoted(found)}"
    return f"{where}: {expected}{said}"


def _place(error: dict[str, Any]) -> str:
    """Name a key of the body and places in its lists; pydantic names the sides of unions too."""
    _, *places = error["loc"]
    if not places:
        return "body"
    key, *inside = places
    return ".".join([_shown(str(key)), *(str(part) for part in inside if isinstance(part, int))])


def _shown(name: str) -> str:
    """Give a name as it is if it looks like one."""
    return name if re.fullmatch(r"\w{1,40}", name, re.ASCII) else quoted(name)


def quoted(value: object) -> str:
    """Write what was sent on one line, and no more than the beginning of it."""
    written = ascii(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return written if len(written) <= _SHOWN + 2 else f"{written[:_SHOWN]}..."
