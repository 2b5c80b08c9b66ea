"""What every route does with its texts: tokenise, queue the work, wait, reserve, respond."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import HTTPException, Request, Response
from jaxtyping import Float

from elmore.embed import pooling
from elmore.embed.outputs import LayerChoice
from elmore.serve import chunks, errors, responses
from elmore.serve.batcher import Batcher
from elmore.serve.engine import EMBED, EmbedWork, Engine
from elmore.serve.limits import Limits
from elmore.serve.responses import Payload
from elmore.serve.send_budget import SMALL_BYTES
from elmore.serve.streaming import StreamedResponse, wait_for_disconnect
from elmore.serve.texts import TokenizedTexts, tokenize_texts

Texts = Sequence[str | list[str]]
_NUMBER_BYTES = 4  # float32


class RequestHandler:
    """Queues the work of a request, and makes a response of its result."""

    def __init__(self, engine: Engine, batcher: Batcher, limits: Limits) -> None:
        self.engine, self.batcher, self.limits = engine, batcher, limits

    async def tokenize(
        self, request: Request, texts: Texts, *, field: str = "texts"
    ) -> TokenizedTexts:
        """Tokenise the texts of a request, and log how many there are."""
        tokenizer = self.engine.embedder.tokenizer
        tokenized = await tokenize_texts(texts, tokenizer, self.limits.tokens, field=field)
        counts = {"texts": len(tokenized.words), "tokens": tokenized.num_tokens}
        request.scope["log_fields"] |= counts
        return tokenized

    async def embed(
        self, request: Request, texts: Texts, layers: LayerChoice, *, field: str = "texts"
    ) -> tuple[TokenizedTexts, list[Float[np.ndarray, "*L T D"]]]:
        """Return the tokens of each text, and their vectors."""
        embedder = self.engine.embedder
        tokenized = await self.tokenize(request, texts, field=field)
        num_layers = embedder.num_layers if layers == "all" else 1
        num_numbers = tokenized.num_tokens * num_layers * embedder.width
        self.reserve(request, num_numbers * _NUMBER_BYTES)
        size = tokenized.num_tokens + 2 * len(tokenized.words)
        work = EmbedWork(tokenized.words, layers)
        return tokenized, await self.wait_for_result(request, EMBED, work, size)

    async def encode(
        self, request: Request, texts: Texts, pool: str | None, *, field: str = "texts"
    ) -> tuple[TokenizedTexts, Float[np.ndarray, "n K"]]:
        """Return the tokens of each text, and one vector per text."""
        embedder = self.engine.embedder
        how, layers = pooling.find_pooling(embedder.poolings, pool, None)
        tokenized, vectors = await self.embed(request, texts, layers, field=field)
        pairs = zip(tokenized.words, vectors, strict=True)
        pooled = await asyncio.to_thread(pooling.pool_texts, pairs, how, embedder.width)
        self.reserve(request, pooled.nbytes)  # no longer for every token
        return tokenized, pooled

    async def wait_for_result(self, request: Request, kind: str, work: Any, tokens: int) -> Any:  # noqa: ANN401
        """Queue work, and wait for its result until the client disconnects or the time is over."""
        (result,) = await self.wait_for_parts(request, kind, [(work, tokens)])
        return result

    async def wait_for_parts(
        self, request: Request, kind: str, parts: Sequence[tuple[Any, int]]
    ) -> list[Any]:
        """Queue the parts of a request with their costs, and wait for all results likewise."""
        sized = [(work, tokens + 2) for work, tokens in parts]  # an empty request is work too
        job = asyncio.ensure_future(self.batcher.submit_parts(kind, sized))
        disconnected = asyncio.ensure_future(wait_for_disconnect(request.receive))
        try:
            await asyncio.wait(
                {job, disconnected},
                timeout=self.limits.response_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if job.done():
                return job.result()
            if disconnected.done():
                raise errors.ClientDisconnected
            seconds = self.limits.response_seconds
            sentence = f"no result within {seconds:g} seconds; retry, or send fewer texts"
            raise HTTPException(503, sentence, {"Retry-After": "10"})
        finally:
            job.cancel()
            disconnected.cancel()

    def reserve(self, request: Request, num_bytes: int) -> None:
        """Reserve memory for a response with so many bytes of numbers, or raise HTTPException."""
        extra = 0 if num_bytes <= SMALL_BYTES else 4 * chunks.CHUNK_BYTES  # buffers
        request.scope["reservation"].resize(num_bytes + extra)

    def respond(self, num_bytes: int, payload: Payload) -> Response:
        """Return a response: at once if it is small, else in chunks."""
        if num_bytes > SMALL_BYTES:
            return StreamedResponse(payload)
        return Response(payload.body, headers=payload.headers, media_type=payload.media_type)

    def respond_json(self, request: Request, value: Any) -> Response:  # noqa: ANN401 -- any JSON value
        """Return a JSON response without vectors."""
        body = chunks.dump_json(value)
        self.reserve(request, len(body))
        return Response(body, media_type=responses.JSON)
