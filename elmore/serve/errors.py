"""Exception handlers: every error is a JSON body with one sentence in `detail`."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from elmore.serve.batcher import QueueFull
from elmore.serve.worker import WorkerDied

CLIENT_CLOSED_REQUEST = 499
_MAX_QUOTED = 40  # characters of the request in an error message


class ClientDisconnected(HTTPException):
    """The client has disconnected: the status is only for the log and the metrics."""

    def __init__(self) -> None:
        super().__init__(CLIENT_CLOSED_REQUEST, "the client disconnected")


def error_response(error: HTTPException) -> JSONResponse:
    """Return the response of an exception."""
    headers = dict(error.headers or {})
    return JSONResponse({"detail": error.detail}, error.status_code, headers)


def install_handlers(app: FastAPI) -> None:
    """Install a handler for each kind of error."""

    @app.exception_handler(StarletteHTTPException)
    async def http_error(request: Request, error: StarletteHTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == 404:
            detail = "no such route; see /openapi.json"
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            detail = f"this route does not accept {_safe_name(request.method)}, only {allowed}"
        return error_response(HTTPException(error.status_code, detail, dict(error.headers or {})))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if not kind.endswith(("/json", "+json")):
            sentence = "the body must be JSON: send the header 'Content-Type: application/json'"
            return error_response(HTTPException(415, sentence))
        errors = error.errors()
        first = errors[0]
        if first["type"] == "json_invalid":
            return error_response(HTTPException(400, f"the body is not JSON: {_reason(first)}"))
        return error_response(HTTPException(422, _sentence(errors)))

    @app.exception_handler(QueueFull)
    async def queue_full(request: Request, error: QueueFull) -> Response:
        seconds = error.seconds
        sentence = f"the queue is full; retry in {seconds} s"
        return error_response(HTTPException(429, sentence, {"Retry-After": str(seconds)}))

    @app.exception_handler(WorkerDied)
    async def worker_died(request: Request, error: WorkerDied) -> Response:
        return error_response(
            HTTPException(503, f"the worker has died ({error}); restart the server")
        )

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> Response:
        return error_response(HTTPException(500, "internal error of the server; see its log"))


def _reason(error: dict[str, Any]) -> str:
    location = error.get("loc", ())
    where = f" at character {location[-1]}" if location and isinstance(location[-1], int) else ""
    reason = error.get("ctx", {}).get("error", "it cannot be parsed")
    return f"{str(reason).lower()}{where}"


def _sentence(errors: Sequence[dict[str, Any]]) -> str:
    """Return where, what was expected (by each side of a union) and what was found."""
    where = _location(errors[0])
    here = [error for error in errors if _location(error) == where]
    expected = ", or ".join(error["msg"][0].lower() + error["msg"][1:] for error in here)
    value = here[0].get("input")
    ending = "" if isinstance(value, dict | list) else f", found {quoted(value)}"
    return f"{where}: {expected}{ending}"


def _location(error: dict[str, Any]) -> str:
    """Return a key of the body and indices of its lists, without pydantic's names of unions."""
    _, *location = error["loc"]
    if not location:
        return "body"
    key, *inside = location
    return ".".join(
        [_safe_name(str(key)), *(str(part) for part in inside if isinstance(part, int))]
    )


def _safe_name(name: str) -> str:
    """Return a name as it is if it looks like one, else quoted."""
    return name if re.fullmatch(r"\w{1,40}", name, re.ASCII) else quoted(name)


def quoted(value: object) -> str:
    """Return the beginning of a value on one line."""
    text = ascii(value[: _MAX_QUOTED + 1] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_QUOTED + 2 else f"{text[:_MAX_QUOTED]}..."
