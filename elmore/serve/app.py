"""The routes: each parses its request, queues the work, and returns the response.

No name and no path of a request reaches the disk: the model, the index and the page are loaded
before the first request.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from starlette.routing import Route

from elmore import __version__
from elmore.errors import ElmoreError
from elmore.lm.word_softmax import count_normalized
from elmore.serve import chunks, errors, openai_api, openapi, page, responses, schemas
from elmore.serve.batcher import Batcher
from elmore.serve.engine import (
    SCORE,
    SEARCH,
    SUBSTITUTES,
    Engine,
    SearchWork,
    SubstitutesWork,
    split_scoring,
)
from elmore.serve.handler import RequestHandler
from elmore.serve.health import check_health, probe_device
from elmore.serve.limits import Limits
from elmore.serve.metrics import Metrics
from elmore.serve.middleware import AuthAndLimits
from elmore.serve.send_budget import SendBudget
from elmore.text.target_word import parse_target


def create(engine: Engine, *, limits: Limits | None = None, token: str | None = None) -> FastAPI:
    """Return the app for a model; with a token, clients must send it."""
    limits = limits or Limits()
    batcher = Batcher(
        engine,
        token_budget=limits.batch_tokens,
        max_queue_tokens=limits.queue_tokens,
        on_batch=lambda batch: metrics.batch(batch),
        hang_seconds=limits.hang_seconds,
    )
    unsent = SendBudget(limits.unsent_bytes)
    metrics = Metrics(lambda: batcher.waiting, lambda: unsent.reserved)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with batcher:
            yield

    app = FastAPI(
        title="elmore",
        version=__version__,
        description="Deep contextualized word representations (ELMo).",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=openapi.GENERAL,
    )
    errors.install_handlers(app)
    handler = RequestHandler(engine, batcher, limits)
    _add_embedding(app, handler)
    _add_words(app, handler)
    openai_api.add_routes(app, handler)
    _add_state(app, engine, batcher, metrics)
    page.add_page(app)
    public_paths = {"/", "/health", "/openapi.json", *page.FILES}
    app.add_middleware(
        AuthAndLimits,
        limits=limits,
        metrics=metrics,
        unsent=unsent,
        token=token,
        routes={route.path for route in app.routes if isinstance(route, Route)},
        public_paths=public_paths,
    )
    if token:
        openapi.require_token(app, public_paths)
    return app


def _media_type(request: Request) -> responses.MediaType:
    media_type = responses.negotiate(", ".join(request.headers.getlist("accept")))
    if media_type is None:
        known = ", ".join(responses.MEDIA_TYPES)
        raise HTTPException(406, f"the header Accept allows none of the available types: {known}")
    return media_type


def _add_embedding(app: FastAPI, handler: RequestHandler) -> None:
    """Add the routes that return vectors."""
    embedder = handler.engine.embedder
    embed_request = schemas.embed_request(
        embedder.num_layers, handler.limits.texts, whitened=embedder.whitening is not None
    )
    encode_request = schemas.encode_request(list(embedder.poolings), handler.limits.texts)

    @app.post(
        "/embed",
        response_model=schemas.EmbedResponse,
        responses={**openapi.binary(schemas.EmbedResponse), **openapi.WORK},
    )
    async def embed(request: Request, body: embed_request) -> Response:  # type: ignore[valid-type]
        """Return the vectors of every token."""
        media_type = _media_type(request)
        texts, vectors = await handler.embed(request, body.texts, body.layers)
        every = (embedder.num_layers,) if body.layers == "all" else ()
        nothing = np.zeros((*every, 0, embedder.width), np.float32)
        size = sum(array.nbytes for array in vectors)
        return handler.respond(size, responses.embed_response(texts, vectors, nothing, media_type))

    @app.post(
        "/encode",
        response_model=schemas.EncodeResponse,
        responses={**openapi.binary(schemas.EncodeResponse), **openapi.WORK},
    )
    async def encode(request: Request, body: encode_request) -> Response:  # type: ignore[valid-type]
        """Return one vector per text: by default with the first pooling of the model."""
        media_type = _media_type(request)
        texts, pooled = await handler.encode(request, body.texts, body.pool)
        payload = responses.encode_response(texts.words, pooled, media_type)
        return handler.respond(pooled.nbytes, payload)


def _check_softmax(engine: Engine) -> None:
    """Raise HTTPException (409) if the model cannot predict words."""
    if not engine.can_score:
        raise HTTPException(
            409,
            "this model was loaded without a softmax, so it cannot score words; serve one that "
            "'elmore pretrain' or 'elmore finetune' made, with its softmax.safetensors",
        )


def _add_words(app: FastAPI, handler: RequestHandler) -> None:
    """Add the routes about words: tokens, scores, substitutes and neighbours."""
    texts_request = schemas.texts_request(handler.limits.texts)
    embedder, index = handler.engine.embedder, handler.engine.index
    bundle = embedder.bundle
    num_scored = 0
    if handler.engine.can_score:
        num_scored = count_normalized(bundle.softmax, len(bundle.vocabulary or ()))
    search_cost = 0 if index is None else index.search_cost

    @app.post("/tokenize", response_model=schemas.TokenizeResponse, responses=openapi.WORK)
    async def tokenize(request: Request, body: texts_request) -> Response:  # type: ignore[valid-type]
        """Return the tokens of each text, and where they are in it."""
        texts = await handler.tokenize(request, body.texts)
        sentences = [
            {"tokens": words, "offsets": offsets} for words, offsets in zip(*texts, strict=True)
        ]
        return handler.respond_json(request, {"sentences": sentences})

    @app.post(
        "/score", response_model=schemas.ScoreResponse, responses=openapi.WORK | openapi.UNAVAILABLE
    )
    async def score(request: Request, body: texts_request) -> Response:  # type: ignore[valid-type]
        """Return the log-probability of each token, given the tokens before it and after it."""
        _check_softmax(handler.engine)
        texts = await handler.tokenize(request, body.texts)
        parts = await handler.wait_for_parts(request, SCORE, split_scoring(texts.words, num_scored))
        scores = chain.from_iterable(parts)
        sentences = [
            {
                "tokens": each.tokens,
                "offsets": offsets,
                "forward": np.round(each.forward, chunks.DIGITS).tolist(),
                "backward": np.round(each.backward, chunks.DIGITS).tolist(),
                "known": list(each.known),
            }
            for each, offsets in zip(scores, texts.offsets, strict=True)
        ]
        return handler.respond_json(request, {"sentences": sentences})

    @app.post(
        "/substitutes",
        response_model=schemas.SubstitutesResponse,
        responses=openapi.WORK | openapi.UNAVAILABLE,
    )
    async def substitutes(request: Request, body: schemas.SubstitutesRequest) -> Response:
        """Return the most probable words at a place of a sentence, whatever stands there."""
        _check_softmax(handler.engine)
        await handler.tokenize(request, [body.tokens], field="tokens")
        if body.position >= len(body.tokens):
            raise HTTPException(
                422,
                f"position: {errors.quoted(body.position)} is outside a sentence of "
                f"{len(body.tokens)} tokens",
            )
        work = SubstitutesWork(body.tokens, body.position, body.count)
        assert bundle.vocabulary is not None
        found = await handler.wait_for_result(
            request, SUBSTITUTES, work, work.cost(len(bundle.vocabulary))
        )
        lists = {
            name: [
                {"word": word, "log_prob": round(value, chunks.DIGITS)}
                for word, value in getattr(found, name)
            ]
            for name in ("forward", "backward", "both")
        }
        return handler.respond_json(request, lists)

    @app.post(
        "/neighbors",
        response_model=schemas.NeighborsResponse,
        responses=openapi.WORK | openapi.UNAVAILABLE,
    )
    async def neighbors(request: Request, body: schemas.NeighborsRequest) -> Response:
        """Return the uses of a word in the index that are nearest to this one."""
        if index is None:
            raise HTTPException(
                409, "this server has no index of uses; start it with 'elmore serve --index FOLDER'"
            )
        try:
            tokens, position = parse_target(body.text, embedder.tokenizer)
        except ElmoreError as error:
            raise HTTPException(422, f"text: {error}") from error
        await handler.tokenize(request, [tokens])
        search = SearchWork(tokens, position, body.k)
        result = await handler.wait_for_result(request, SEARCH, search, search.cost(search_cost))
        occurrences = [
            {
                "word": each.word,
                "tokens": list(each.tokens),
                "position": int(each.position),
                "similarity": round(float(each.similarity), 6),
                "line": int(each.line),
            }
            for each in result
        ]
        return handler.respond_json(request, {"word": tokens[position], "neighbors": occurrences})


def _add_state(app: FastAPI, engine: Engine, batcher: Batcher, metrics: Metrics) -> None:
    """Add the routes about the server itself."""
    device = str(engine.embedder.device)
    served = schemas.ServerInfo(
        model=engine.model_name,
        width=engine.embedder.width,
        layers=engine.embedder.num_layers,
        index=engine.index is not None,
        scores=engine.can_score,
        whitening=engine.embedder.whitening is not None,
        version=__version__,
    )

    @app.get(
        "/health", response_model=schemas.Health, responses={503: {"model": schemas.Unhealthy}}
    )
    async def health() -> Response:
        """Return what is served, and whether worker and device still respond."""
        state = await check_health(batcher, device, lambda: probe_device(device))
        body = schemas.Health(
            status="ok" if state.problem is None else "unhealthy",
            worker=schemas.Worker(state=state.worker, busy_seconds=round(state.busy_seconds, 3)),
            device=schemas.Device(name=device, state=state.device),
            **served.model_dump(),
        ).model_dump()
        if state.problem is None:
            return JSONResponse(body)
        return JSONResponse({"detail": state.problem, **body}, 503, errors.UNHEALTHY)

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics_() -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")
