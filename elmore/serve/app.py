"""The routes: each reads its request, puts the work into the queue, and writes the answer.

No name and no path from a request reaches the disk: the model, the index and the page are read
before the first request comes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from starlette.routing import Route

from elmore import __version__
from elmore.embed.outputs import LayerChoice
from elmore.embed.pooling import pool
from elmore.errors import ElmoreError
from elmore.serve import answers, openapi, page, pieces, refusals, schemas
from elmore.serve.answers import Answer
from elmore.serve.batcher import Batcher
from elmore.serve.door import Door
from elmore.serve.engine import EMBED, SCORE, SEARCH, Engine, Reading, Search
from elmore.serve.health import examine, touch
from elmore.serve.limits import Limits
from elmore.serve.metrics import Metrics
from elmore.serve.streaming import StreamedResponse, wait_for_disconnect
from elmore.serve.texts import read_texts
from elmore.serve.unsent import SMALL_BYTES, UnsentBytes

_NUMBER_BYTES = 4  # float32


def create(engine: Engine, *, limits: Limits | None = None, token: str | None = None) -> FastAPI:
    """Give the app for a model; with a token, only who sends it is served."""
    limits = limits or Limits()
    batcher = Batcher(
        engine,
        token_budget=limits.batch_tokens,
        room=limits.queue_tokens,
        told=lambda batch: metrics.batch(batch),
        hang_seconds=limits.hang_seconds,
    )
    unsent = UnsentBytes(limits.unsent_bytes)
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
    refusals.install(app)
    desk = _Desk(engine, batcher, limits)
    _add_model(app, desk)
    _add_language(app, desk)
    _add_state(app, engine, batcher, metrics)
    page.add(app)
    open_to_all = {"/", "/health", "/openapi.json", *page.FILES}
    app.add_middleware(
        Door,
        limits=limits,
        metrics=metrics,
        unsent=unsent,
        token=token,
        routes={route.path for route in app.routes if isinstance(route, Route)},
        open_to_all=open_to_all,
    )
    if token:
        openapi.ask_for_token(app, open_to_all)
    return app


class _Desk:
    """Takes work from a request to the queue and its result back."""

    def __init__(self, engine: Engine, batcher: Batcher, limits: Limits) -> None:
        self.engine, self.batcher, self.limits = engine, batcher, limits
        self.texts_request = schemas.texts_request(limits.texts)

    async def tokens(self, request: Request, texts: Sequence[str | list[str]]) -> list[list[str]]:
        """Read the texts of a request, and note how much it asks for."""
        found = await read_texts(texts, self.engine.embedder.tokenizer, self.limits.tokens)
        noted = {"texts": len(found), "tokens": sum(map(len, found))}
        request.scope["noted"] |= noted
        return found

    async def result(self, request: Request, kind: str, work: Any, tokens: int) -> Any:  # noqa: ANN401
        """Wait for the result; give up when the client went away or the time is over."""
        size = tokens + 2  # for a request without a text is work too
        job = asyncio.ensure_future(self.batcher.submit(kind, work, size))
        gone = asyncio.ensure_future(wait_for_disconnect(request.receive))
        try:
            await asyncio.wait(
                {job, gone},
                timeout=self.limits.answer_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if job.done():
                return job.result()
            if gone.done():
                raise refusals.ClientGone
            seconds = self.limits.answer_seconds
            sentence = f"there was no answer within {seconds:g} seconds; try again, or ask for less"
            raise HTTPException(503, sentence, {"Retry-After": "10"})
        finally:
            job.cancel()
            gone.cancel()

    def reserve(self, request: Request, num_bytes: int) -> None:
        """Reserve room for an answer with so many bytes of numbers, or refuse the request."""
        extra = 0 if num_bytes <= SMALL_BYTES else 4 * pieces.PIECE_BYTES  # two are on their way
        request.scope["unsent"].resize(num_bytes + extra)

    def answer(self, num_bytes: int, found: Answer) -> Response:
        """Give an answer with so many bytes of numbers: at once if it is small, else in pieces."""
        if num_bytes > SMALL_BYTES:
            return StreamedResponse(found)
        return Response(found.body, headers=found.headers, media_type=found.form)

    def json(self, request: Request, value: Any) -> Response:  # noqa: ANN401 -- what JSON can say
        """Give an answer that is not about vectors."""
        body = pieces.dump_json(value)
        self.reserve(request, len(body))
        return Response(body, media_type=answers.JSON)


def _form(request: Request) -> answers.Form:
    form = answers.chosen(request.headers.get("accept", ""))
    if form is None:
        known = ", ".join(answers.FORMS)
        raise HTTPException(406, f"the header Accept names none of what there is: {known}")
    return form


def _add_model(app: FastAPI, desk: _Desk) -> None:
    """Add what gives vectors."""
    embedder = desk.engine.embedder
    embed_request = schemas.embed_request(embedder.num_layers, desk.limits.texts)
    texts_request = desk.texts_request

    async def read(
        request: Request, texts: Sequence[str | list[str]], layers: LayerChoice
    ) -> tuple[list[list[str]], list[np.ndarray]]:
        words = await desk.tokens(request, texts)
        num_tokens = sum(map(len, words))
        num_layers = embedder.num_layers if layers == "all" else 1
        desk.reserve(request, num_tokens * num_layers * embedder.width * _NUMBER_BYTES)
        size = num_tokens + 2 * len(words)
        return words, await desk.result(request, EMBED, Reading(words, layers), size)

    @app.post(
        "/embed",
        response_model=schemas.EmbedAnswer,
        responses={**openapi.binary(schemas.EmbedAnswer), **openapi.WORK},
    )
    async def embed(request: Request, body: embed_request) -> Response:  # type: ignore[valid-type]
        """Give the vectors of every word."""
        form = _form(request)
        words, vectors = await read(request, body.texts, body.layers)
        every = (embedder.num_layers,) if body.layers == "all" else ()
        nothing = np.zeros((*every, 0, embedder.width), np.float32)
        size = sum(array.nbytes for array in vectors)
        return desk.answer(size, answers.embedded(words, vectors, nothing, form))

    @app.post(
        "/encode",
        response_model=schemas.EncodeAnswer,
        responses={**openapi.binary(schemas.EncodeAnswer), **openapi.WORK},
    )
    async def encode(request: Request, body: texts_request) -> Response:  # type: ignore[valid-type]
        """Give one vector for each text: the mean of its words, over all layers."""
        form = _form(request)
        words, vectors = await read(request, body.texts, "average")
        pairs = zip(words, vectors, strict=True)
        rows = [pool(tokens, array, "mean") for tokens, array in pairs]
        joined = np.stack(rows) if rows else np.zeros((0, embedder.width), np.float32)
        desk.reserve(request, joined.nbytes)  # and no longer for every word
        return desk.answer(joined.nbytes, answers.encoded(words, joined, form))


def _add_language(app: FastAPI, desk: _Desk) -> None:
    """Add what speaks of words."""
    texts_request = desk.texts_request

    @app.post("/score", response_model=schemas.ScoreAnswer, responses=openapi.WORK | openapi.LACK)
    async def score(request: Request, body: texts_request) -> Response:  # type: ignore[valid-type]
        """Say how likely each word was, given what precedes and what follows."""
        if not desk.engine.can_score:
            raise HTTPException(
                409,
                "this model has no softmax, so it cannot say how likely words are; serve one that "
                "'elmore pretrain' or 'elmore finetune' made",
            )
        words = await desk.tokens(request, body.texts)
        size = sum(len(each) + 2 for each in words)
        found = await desk.result(request, SCORE, words, size)
        sentences = [
            {
                "tokens": each.tokens,
                "forward": np.round(each.forward, pieces.DIGITS).tolist(),
                "backward": np.round(each.backward, pieces.DIGITS).tolist(),
                "known": list(each.known),
            }
            for each in found
        ]
        return desk.json(request, {"sentences": sentences})

    @app.post(
        "/neighbors",
        response_model=schemas.NeighborsAnswer,
        responses=openapi.WORK | openapi.LACK,
    )
    async def neighbors(request: Request, body: schemas.NeighborsRequest) -> Response:
        """Give the uses of a word in the index that are nearest to this one."""
        uses = desk.engine.uses
        if uses is None:
            raise HTTPException(
                409, "this server has no index of uses; start it with 'elmore serve --index FOLDER'"
            )
        try:
            tokens, position = uses.mark(body.text)
        except ElmoreError as error:
            raise HTTPException(422, f"text: {error}") from error
        await desk.tokens(request, [tokens])
        search = Search(tokens, position, body.k)
        found = await desk.result(request, SEARCH, search, len(tokens) + 2)
        neighbors_ = [
            {
                "word": use.word,
                "tokens": list(use.tokens),
                "position": int(use.position),
                "similarity": round(float(use.similarity), 6),
                "line": int(use.line),
            }
            for use in found
        ]
        return desk.json(request, {"word": tokens[position], "neighbors": neighbors_})


def _add_state(app: FastAPI, engine: Engine, batcher: Batcher, metrics: Metrics) -> None:
    """Add what tells of the server itself."""
    device = str(engine.embedder.device)
    served = schemas.Served(
        model=engine.embedder.bundle.card.name or "unnamed",
        width=engine.embedder.width,
        layers=engine.embedder.num_layers,
        index=engine.uses is not None,
        scores=engine.can_score,
        version=__version__,
    )

    @app.get(
        "/health", response_model=schemas.Health, responses={503: {"model": schemas.Unhealthy}}
    )
    async def health() -> Response:
        """Say what runs here, and whether worker and device still answer."""
        found = await examine(batcher, device, lambda: touch(device))
        told = schemas.Health(
            status="ok" if found.problem is None else "unhealthy",
            worker=schemas.Worker(state=found.worker, busy_seconds=round(found.busy_seconds, 3)),
            device=schemas.Device(name=device, state=found.device),
            **served.model_dump(),
        ).model_dump()
        if found.problem is None:
            return JSONResponse(told)
        return JSONResponse({"detail": found.problem, **told}, 503)

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics_() -> Response:
        """Give what Prometheus reads."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")
