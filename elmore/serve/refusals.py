"""Everything that is answered with something other than success: one sentence in `detail`."""

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException

from elmore.serve import answers
from elmore.serve.batcher import QueueFull
from elmore.serve.limits import WENT_AWAY, refused
from elmore.serve.schemas import Problem

_log = logging.getLogger(__name__)

_SHOWN = 40  # characters of what was sent, in a sentence about it


class ClientGone(Exception):  # noqa: N818 -- it is no fault
    """Nobody waits for the answer."""


def _problem(description: str, **headers: str) -> dict[str, Any]:
    found: dict[str, Any] = {"model": Problem, "description": description}
    if headers:
        found["headers"] = {
            name.replace("_", "-"): {"schema": {"type": "string"}, "description": about}
            for name, about in headers.items()
        }
    return found


GENERAL: dict[int | str, dict[str, Any]] = {
    400: _problem("not HTTP, or not JSON"),
    405: _problem("another method is meant"),
}
WORK: dict[int | str, dict[str, Any]] = {
    406: _problem("no such form of answer"),
    408: _problem("the body did not come in time"),
    413: _problem("too many bytes or tokens"),
    415: _problem("the body is not said to be JSON"),
    422: _problem("JSON, but not what is expected"),
    429: _problem("the queue is full", Retry_After="seconds"),
    503: _problem("no answer in time", Retry_After="seconds"),
}
LACK: dict[int | str, dict[str, Any]] = {409: _problem("this server has no means for it")}


def binary(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Describe an answer that may be JSON or binary."""
    bytes_ = {"schema": {"type": "string", "format": "binary"}}
    return {200: {"model": model, "content": dict.fromkeys(answers.FORMS[1:], bytes_)}}


def ask_for_token(app: FastAPI, open_to_all: set[str]) -> None:
    """Say in the OpenAPI which routes ask for the token."""
    found = app.openapi()
    found.setdefault("components", {})["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"}
    }
    problem = {"$ref": "#/components/schemas/Problem"}
    for path, methods in found["paths"].items():
        if path not in open_to_all:
            for operation in methods.values():
                operation["security"] = [{"token": []}]
                operation["responses"]["401"] = {
                    "description": "no token, or another",
                    "content": {answers.JSON: {"schema": problem}},
                }


def install(app: FastAPI) -> None:
    """Answer every kind of trouble."""

    @app.exception_handler(StarletteHTTPException)
    async def refusal(request: Request, error: StarletteHTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == 404:
            detail = "there is nothing here; the routes are listed at /openapi.json"
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            detail = f"this route does not take {request.method}, it takes {allowed}"
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

    @app.exception_handler(ClientGone)
    async def gone(request: Request, error: ClientGone) -> Response:
        return Response(status_code=WENT_AWAY)  # for the log; there is nobody to read it

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
    if isinstance(found, str):
        found = found[:_SHOWN]
    shown = "" if isinstance(found, dict | list) else f", found {ascii(found)[:_SHOWN]}"
    return f"{where}: {expected}{shown}"


def _place(error: dict[str, Any]) -> str:
    parts = [str(part) for part in error["loc"] if not _is_branch(part)]
    return ".".join(parts[1:]) or "body"


def _is_branch(part: object) -> bool:
    """Tell pydantic's names for the sides of a union from names of ours."""
    return isinstance(part, str) and any(sign in part for sign in "[(-")
