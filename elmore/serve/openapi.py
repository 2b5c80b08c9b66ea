"""What the OpenAPI document has beyond the schemas: errors, binary responses, the token."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from elmore.serve import responses
from elmore.serve.errors import OPENAI_PATHS
from elmore.serve.schemas import OpenAIProblem, Problem


def _problem(description: str, **headers: str) -> dict[str, Any]:
    response: dict[str, Any] = {"model": Problem, "description": description}
    if headers:
        response["headers"] = {
            name.replace("_", "-"): {"schema": {"type": "string"}, "description": about}
            for name, about in headers.items()
        }
    return response


GENERAL: dict[int | str, dict[str, Any]] = {
    400: _problem("not HTTP, or not JSON"),
    405: _problem("method not allowed"),
    413: _problem("too many bytes or tokens"),
    503: _problem("overloaded, or no response in time", Retry_After="seconds"),
}
WORK: dict[int | str, dict[str, Any]] = {
    406: _problem("no such media type"),
    408: _problem("the body was not received in time"),
    415: _problem("the content type is not JSON"),
    422: _problem("valid JSON, but not a valid request"),
    429: _problem("the queue is full", Retry_After="seconds"),
}
OPENAI: dict[int | str, dict[str, Any]] = {
    status: {**answer, "model": OpenAIProblem} for status, answer in GENERAL.items()
}
# Without it FastAPI adds a 422, which these routes never answer.
OPENAI["default"] = {"model": OpenAIProblem, "description": "any other error"}
NO_MODEL: dict[int | str, dict[str, Any]] = {
    404: {"model": OpenAIProblem, "description": "no such model"}
}
OPENAI_WORK: dict[int | str, dict[str, Any]] = (
    OPENAI
    | NO_MODEL
    | {
        400: {**OPENAI[400], "description": "not HTTP, not JSON, or not a valid request"},
        **{status: {**WORK[status], "model": OpenAIProblem} for status in (408, 415, 429)},
    }
)
UNAVAILABLE: dict[int | str, dict[str, Any]] = {409: _problem("this server cannot do it")}


def binary(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Describe a response that may be JSON or binary."""
    bytes_ = {"schema": {"type": "string", "format": "binary"}}
    return {200: {"model": model, "content": dict.fromkeys(responses.MEDIA_TYPES[1:], bytes_)}}


def require_token(app: FastAPI, public_paths: set[str]) -> None:
    """Mark the routes that require the token."""
    document = app.openapi()
    document.setdefault("components", {})["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"}
    }
    for path, methods in document["paths"].items():
        name = "OpenAIProblem" if path.startswith(OPENAI_PATHS) else "Problem"
        problem = {"$ref": f"#/components/schemas/{name}"}
        if path not in public_paths:
            for operation in methods.values():
                operation["security"] = [{"token": []}]
                operation["responses"]["401"] = {
                    "description": "missing or wrong token",
                    "content": {responses.JSON: {"schema": problem}},
                }
