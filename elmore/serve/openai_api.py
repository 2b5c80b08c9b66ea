"""OpenAI's embeddings protocol: /v1/embeddings and /v1/models, for clients that already speak it.

It is /encode with the names of that protocol: the same tokens, batches, limits and pooling. Vectors
have length 1, because clients compare them by their inner product. `errors` has the error bodies.

Shapes: n texts, K pooled width.
"""

import base64
import itertools
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, Request, Response
from jaxtyping import Float
from pydantic import BaseModel, BeforeValidator, Field, create_model
from pydantic_core import PydanticCustomError

from elmore.embed import pooling
from elmore.serve import chunks, openapi, responses
from elmore.serve.errors import RequestError, quoted
from elmore.serve.handler import RequestHandler
from elmore.serve.schemas import Integer, StrictRequest, String
from elmore.weights.pooling import TextPooling

OWNER = "elmore"


def _refuse_token_ids(value: object) -> object:
    """Refuse a list of numbers, or a list of such lists."""
    items = value if isinstance(value, list) else []
    numbers = itertools.chain.from_iterable(
        item if isinstance(item, list) else [item] for item in items
    )
    if any(isinstance(number, int) for number in numbers):
        raise PydanticCustomError(
            "token_ids",
            "token ids are those of another model's tokenizer, and this model reads characters; "
            "send strings (in LangChain: check_embedding_ctx_length=False)",
        )
    return value


class EmbeddingsRequest(StrictRequest):
    """Texts to encode, as in OpenAI's protocol."""

    input: str | list[str]
    model: str
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        Field(description="numbers, or little-endian float32 in base64; by default numbers"),
    ] = None
    dimensions: int | None = None
    user: Annotated[str | None, Field(description="is ignored")] = None


def embeddings_request(model: str, widths: range, max_texts: int) -> type[EmbeddingsRequest]:
    """Return the request type of a model whose pooled vectors can have these widths."""
    texts = Annotated[list[String], Field(min_length=1, max_length=max_texts, fail_fast=True)]
    either = Annotated[
        String | texts,
        Field(description="one text, or several"),
        BeforeValidator(_refuse_token_ids),
    ]
    # In the schema only: other models and dimensions have errors of their own.
    only_model = Annotated[str, Field(json_schema_extra={"enum": [model]})]
    about = "numbers of a vector: its first ones, scaled to length 1; by default all"
    bounds = {"anyOf": [_bounds(widths), {"type": "null"}]}
    dimensions = Annotated[int | None, Field(description=about, json_schema_extra=bounds), Integer]
    return create_model(
        "EmbeddingsRequest",
        __base__=EmbeddingsRequest,
        __doc__=EmbeddingsRequest.__doc__,
        input=(either, ...),
        model=(only_model, ...),
        dimensions=(dimensions, None),
    )


def _bounds(widths: range) -> dict[str, Any]:
    return {"type": "integer", "minimum": widths[0], "maximum": widths[-1]}


class Embedding(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """How many tokens were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """One vector per text, in order."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class Model(BaseModel):
    """A model of this server."""

    id: str
    object: Literal["model"]
    created: Annotated[int, Field(description="when it was loaded, in seconds since 1970")]
    owned_by: str


class ModelsResponse(BaseModel):
    """The models of this server: one."""

    object: Literal["list"]
    data: list[Model]


def add_routes(app: FastAPI, handler: RequestHandler) -> None:
    """Add the routes."""
    engine = handler.engine
    how, _ = pooling.find_pooling(engine.embedder.poolings, None, None)
    width = pooling.pooled_width(how, engine.embedder.width)
    truncatable = isinstance(how, TextPooling) and how.truncatable
    widths = range(1 if truncatable else width, width + 1)
    request_type = embeddings_request(engine.model_name, widths, handler.limits.texts)
    served = Model(id=engine.model_name, object="model", created=int(time.time()), owned_by=OWNER)

    @app.post("/v1/embeddings", response_model=EmbeddingsResponse, responses=openapi.OPENAI_WORK)
    async def embeddings(request: Request, body: request_type) -> Response:  # type: ignore[valid-type]
        """Return one vector of length 1 per text, with the first pooling of the model."""
        _check_model(body.model, engine.model_name)
        _check_dimensions(body.dimensions, widths)
        texts = [body.input] if isinstance(body.input, str) else body.input
        tokenized, pooled = await handler.encode(request, texts, None, field="input")
        vectors = pooling.normalize(pooled[:, : body.dimensions])
        usage = {"prompt_tokens": tokenized.num_tokens, "total_tokens": tokenized.num_tokens}
        ending = {"model": engine.model_name, "usage": usage}
        as_base64 = body.encoding_format == "base64"
        payload = responses.Payload(
            lambda: chunks.rechunk(_dump(vectors, ending, as_base64=as_base64)), responses.JSON, {}
        )
        return handler.respond(vectors.nbytes, payload)

    @app.get("/v1/models", response_model=ModelsResponse, responses=openapi.OPENAI)
    async def models() -> ModelsResponse:
        """Return the model of this server."""
        return ModelsResponse(object="list", data=[served])

    @app.get(
        "/v1/models/{model:path}",  # a name may have slashes
        response_model=Model,
        responses=openapi.OPENAI | openapi.NO_MODEL,
    )
    async def model(model: str) -> Model:
        """Return the model of that name."""
        _check_model(model, engine.model_name)
        return served


def _check_model(name: str, served: str) -> None:
    if name != served:
        raise RequestError(
            404,
            f"model: this server has no {quoted(name)}, only {served!r}",
            param="model",
            code="model_not_found",
        )


def _check_dimensions(dimensions: int | None, widths: range) -> None:
    if dimensions is None or dimensions in widths:
        return
    if len(widths) > 1:
        expected = f"expected {widths[0]} to {widths[-1]}"
    else:
        expected = f"these vectors have {widths[0]} and cannot be truncated; leave it out"
    sentence = f"dimensions: found {quoted(dimensions)}, {expected}"
    raise RequestError(422, sentence, param="dimensions")


def _dump(
    vectors: Float[np.ndarray, "n K"], ending: dict[str, Any], *, as_base64: bool
) -> Iterator[bytes]:
    """Yield the JSON body of /v1/embeddings."""
    yield b'{"object": "list", "data": ['
    for number, vector in enumerate(vectors):
        yield b", " if number else b""
        yield b'{"object": "embedding", "index": %d, "embedding": ' % number
        if as_base64:
            yield b'"%b"' % base64.b64encode(vector.astype("<f4").tobytes())
        else:
            yield from chunks.dump_array(vector)
        yield b"}"
    yield b"], " + chunks.dump_json(ending)[1:]
