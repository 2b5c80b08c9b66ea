"""What OpenAPI says beyond the schemas: refusals, binary answers, the token."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from elmore.serve import answers
from elmore.serve.schemas import Problem


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
    413: _problem("too many bytes or tokens"),
    503: _problem("too much at once, or no answer in time", Retry_After="seconds"),
}
WORK: dict[int | str, dict[str, Any]] = {
    406: _problem("no such form of answer"),
    408: _problem("the body did not come in time"),
    415: _problem("the body is not said to be JSON"),
    422: _problem("JSON, but not what is expected"),
    429: _problem("the queue is full", Retry_After="seconds"),
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
