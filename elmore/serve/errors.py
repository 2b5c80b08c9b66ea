"""Exception handlers: every error is a JSON body with one sentence.

The sentence is in `detail`, or below /v1 where clients of OpenAI's protocol look for it:

    {"error": {"message": SENTENCE, "type": ..., "param": FIELD or null, "code": ... or null}}
"""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from elmore.serve.batcher import QueueFull
from elmore.serve.worker import WorkerDied, WorkerHung

CLIENT_CLOSED_REQUEST = 499
OPENAI_PATHS = "/v1/"
UNHEALTHY = {"Retry-After": "30"}
"""Header of an unhealthy server: some time for it to recover, or for somebody to restart it."""
_MAX_QUOTED = 40  # characters of the request in an error message
_OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


class RequestError(HTTPException):
    """A refused request, with the field at fault and a code for programs (OpenAI's protocol)."""

    def __init__(
        self,
        status: int,
        sentence: str,
        headers: dict[str, str] | None = None,
        *,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(status, sentence, headers)
        self.param, self.code = param, code


class ClientDisconnected(HTTPException):
    """The client has disconnected: the status is only for the log and the metrics."""

    def __init__(self) -> None:
        super().__init__(CLIENT_CLOSED_REQUEST, "the client disconnected")


def error_response(path: str, error: HTTPException) -> JSONResponse:
    """Return the response of an exception, in the form that clients of this path expect."""
    headers = dict(error.headers or {})
    if not path.startswith(OPENAI_PATHS):
        return JSONResponse({"detail": error.detail}, error.status_code, headers)
    status = 400 if error.status_code == 422 else error.status_code  # it has no 422
    usual = "invalid_request_error" if status < 500 else "server_error"
    problem = {
        "message": error.detail,
        "type": _OPENAI_TYPES.get(status, usual),
        "param": getattr(error, "param", None),
        "code": getattr(error, "code", None),
    }
    return JSONResponse({"error": problem}, status, headers)


def install_handlers(app: FastAPI) -> None:
    """Install a handler for each kind of error."""

    @app.exception_handler(StarletteHTTPException)
    async def http_error(request: Request, error: StarletteHTTPException) -> Response:
        return _respond(request, _explain(request, error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        unread = isinstance(error.body, bytes)  # JSON of another type, such as text/json
        if unread or not kind.endswith(("/json", "+json")):
            sentence = "the body must be JSON: send the header 'Content-Type: application/json'"
            return _respond(request, HTTPException(415, sentence))
        errors = error.errors()
        first = errors[0]
        if first["type"] == "json_invalid":
            sentence = f"the body is not JSON: {_reason(first)}"
            return _respond(request, HTTPException(400, sentence))
        return _respond(request, RequestError(422, _sentence(errors), param=_field(first)))

    @app.exception_handler(QueueFull)
    async def queue_full(request: Request, error: QueueFull) -> Response:
        seconds = error.seconds
        sentence = f"the queue is full; retry in {seconds} s"
        return _respond(request, HTTPException(429, sentence, {"Retry-After": str(seconds)}))

    @app.exception_handler(WorkerDied)
    async def worker_died(request: Request, error: WorkerDied) -> Response:
        sentence = f"the worker has died ({error}); restart the server"
        return _respond(request, HTTPException(503, sentence, UNHEALTHY))

    @app.exception_handler(WorkerHung)
    async def worker_hung(request: Request, error: WorkerHung) -> Response:
        sentence = f"{error}; retry in {UNHEALTHY['Retry-After']} s"
        return _respond(request, HTTPException(503, sentence, UNHEALTHY))

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> Response:
        return _respond(request, HTTPException(500, "internal error of the server; see its log"))


def _respond(request: Request, error: HTTPException) -> Response:
    return error_response(request.scope["path"], error)


def _explain(request: Request, error: StarletteHTTPException) -> HTTPException:
    """Return an error of ours as it is, and one of the framework with a sentence."""
    if isinstance(error, RequestError):
        return error
    detail, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 404:
        detail = "no such route; see /openapi.json"
    elif error.status_code == 400:  # what is JSON by its grammar, but cannot be read
        detail = "the body is not JSON: it is not UTF-8, nested too deeply, or a number is too long"
    elif error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        detail = f"this route does not accept {_safe_name(request.method)}, only {allowed}"
    return HTTPException(error.status_code, detail, headers)


def _reason(error: dict[str, Any]) -> str:
    location = error.get("loc", ())
    where = f" at character {location[-1]}" if location and isinstance(location[-1], int) else ""
    reason = error.get("ctx", {}).get("error", "it cannot be parsed")
    return f"{str(reason).lower().removesuffix(' at')}{where}"


def _sentence(errors: Sequence[dict[str, Any]]) -> str:
    """Return where, what was expected (by each side of a union) and what was found.

    Of the errors of a union, the innermost ones count: they are of the side that was meant. Where
    one side accepts the type and not the value, the type that another expects is no news.
    """
    field = [error for error in errors if _field(error) == _field(errors[0])]
    where = _location(max(field, key=lambda error: len(error["loc"])))
    here = [error for error in field if _location(error) == where]
    here = [error for error in here if not error["type"].endswith("_type")] or here
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


def _field(error: dict[str, Any]) -> str | None:
    """Return the key of the body, None for the body itself."""
    return _safe_name(str(error["loc"][1])) if len(error["loc"]) > 1 else None


def _safe_name(name: str) -> str:
    """Return a name as it is if it looks like one, else quoted."""
    return name if re.fullmatch(r"\w{1,40}", name, re.ASCII) else quoted(name)


def quoted(value: object) -> str:
    """Return the beginning of a value on one line."""
    text = ascii(value[: _MAX_QUOTED + 1] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_QUOTED + 2 else f"{text[:_MAX_QUOTED]}..."
