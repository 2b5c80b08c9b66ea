"""Requests and responses as pydantic models, from which the OpenAPI document is made."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

MAX_CHARACTERS = 20_000
MAX_TOKENS = 2048
"""Tokens of one text; a batch of the model is at least as large."""
MAX_NEIGHBORS = 100
MAX_SUBSTITUTES = 100

String = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Token = Annotated[str, Field(min_length=1, max_length=1000)]
# A list fails at its first wrong item: a body has room for half a million, each an error.
Tokens = Annotated[list[Token], Field(max_length=MAX_TOKENS, fail_fast=True)]
Texts = Annotated[
    list[String | Tokens],
    Field(
        fail_fast=True,
        description="strings, or lists of tokens",
        examples=[["I left it at the bank .", ["a", "list", "of", "tokens"]]],
    ),
]


def _check_integer(value: object) -> object:
    """Accept 1.0 for 1: in JSON they are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = BeforeValidator(_check_integer)  # after the bounds, or the OpenAPI document lacks them


class StrictRequest(BaseModel):
    """A request with no other fields and no conversions between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _keep_one_extra(cls, body: object) -> object:
        """Keep one unknown field, to refuse: a body has room for 100,000, each an error."""
        if not isinstance(body, dict):
            return body
        known = {name: body[name] for name in cls.model_fields if name in body}
        extra = next((name for name in body if name not in known), None)
        return known if extra is None else {**known, extra: body[extra]}


class EmbedRequest(StrictRequest):
    """Texts to embed."""

    texts: Texts
    layers: Literal["average", "all", "top", "cloze", "whitened"] | int = "average"


def embed_request(num_layers: int, max_texts: int, *, whitened: bool) -> type[EmbedRequest]:
    """Return the request type of a model with this many layers, and perhaps a whitening."""
    layer = Annotated[int, Field(ge=0, lt=num_layers), Integer]
    about = (
        "the mean of all layers, all layers, the last one, one by its number, the last one on both "
        "sides of each word, without the word (cloze), or the whitening of the model, if it has one"
    )
    names: Any = Literal["average", "all", "top", "cloze"]
    if whitened:
        names = Literal["average", "all", "top", "cloze", "whitened"]
    choice = Annotated[names | layer, Field(description=about)]
    return create_model(
        "EmbedRequest",
        __base__=EmbedRequest,
        __doc__=EmbedRequest.__doc__,
        texts=(Annotated[Texts, Field(max_length=max_texts)], ...),
        layers=(choice, "average"),
    )


class TextsRequest(StrictRequest):
    """Texts."""

    texts: Texts


def texts_request(max_texts: int) -> type[TextsRequest]:
    """Return the request type with a limit of texts."""
    return create_model(
        "TextsRequest",
        __base__=TextsRequest,
        __doc__=TextsRequest.__doc__,
        texts=(Annotated[Texts, Field(max_length=max_texts)], ...),
    )


class EncodeRequest(TextsRequest):
    """Texts to encode."""

    pool: str | None = None


def encode_request(poolings: Sequence[str], max_texts: int) -> type[EncodeRequest]:
    """Return the request type of a model with these poolings."""
    names = (*poolings, "mean", "max")
    about = "the mean or maximum of the tokens, or a pooling of the model"
    choice = Annotated[Literal[names], Field(description=about)]  # type: ignore[valid-type]
    return create_model(
        "EncodeRequest",
        __base__=EncodeRequest,
        __doc__=EncodeRequest.__doc__,
        texts=(Annotated[Texts, Field(max_length=max_texts)], ...),
        pool=(choice, next(iter(names))),
    )


class NeighborsRequest(StrictRequest):
    """A sentence with one word in brackets."""

    text: Annotated[str, Field(max_length=MAX_CHARACTERS, examples=["the [play] was a success ."])]
    k: Annotated[int, Field(ge=1, le=MAX_NEIGHBORS, description="how many"), Integer] = 10


class SubstitutesRequest(StrictRequest):
    """A place in a sentence."""

    tokens: Annotated[
        list[Token],
        Field(
            min_length=1,
            max_length=MAX_TOKENS,
            fail_fast=True,
            examples=[["the", "play", "was", "a", "success"]],
        ),
    ]
    position: Annotated[int, Field(ge=0, description="of a token, from 0"), Integer]
    count: Annotated[int, Field(ge=1, le=MAX_SUBSTITUTES, description="how many"), Integer] = 10


class TokenizedSentence(BaseModel):
    """Tokens and where they are in the text."""

    tokens: list[str]
    offsets: Annotated[
        list[tuple[int, int]] | None,
        Field(
            description="start and end of each token in characters (Unicode code points), the end "
            "exclusive; null if the text was a list of tokens"
        ),
    ]


class TokenizeResponse(BaseModel):
    """One sentence per text, in order."""

    sentences: list[TokenizedSentence]


class EmbeddedSentence(TokenizedSentence):
    """Tokens and their vectors."""

    vectors: Annotated[
        list[list[float]] | list[list[list[float]]],
        Field(description="(tokens, width), with all layers (layers, tokens, width)"),
    ]


class EmbedResponse(BaseModel):
    """One sentence per text, in order."""

    sentences: list[EmbeddedSentence]


class EncodeResponse(BaseModel):
    """One vector per text, in order."""

    vectors: list[list[float]]


class ScoredSentence(TokenizedSentence):
    """Tokens and their log-probabilities (natural logarithm)."""

    forward: Annotated[list[float], Field(description="given all tokens before")]
    backward: Annotated[list[float], Field(description="given all tokens after")]
    known: Annotated[
        list[bool], Field(description="in the vocabulary; other words are scored as <UNK>")
    ]


class ScoreResponse(BaseModel):
    """One sentence per text, in order."""

    sentences: list[ScoredSentence]


class RankedWord(BaseModel):
    """A word and its log-probability (natural logarithm)."""

    word: str
    log_prob: float


class SubstitutesResponse(BaseModel):
    """The words at a place, the most probable ones first."""

    forward: Annotated[list[RankedWord], Field(description="given all tokens before")]
    backward: Annotated[list[RankedWord], Field(description="given all tokens after")]
    both: Annotated[list[RankedWord], Field(description="given both")]


class Occurrence(BaseModel):
    """A word in a sentence of the indexed text."""

    word: str
    tokens: list[str]
    position: int
    similarity: float
    line: int


class NeighborsResponse(BaseModel):
    """Uses of words, the nearest first."""

    word: str
    neighbors: list[Occurrence]


class ServerInfo(BaseModel):
    """The model and what the server can do."""

    model: str
    width: int
    layers: int
    index: Annotated[bool, Field(description="whether /neighbors is available")]
    scores: Annotated[bool, Field(description="whether /score and /substitutes are available")]
    whitening: Annotated[bool, Field(description="whether /embed returns whitened vectors")]
    version: str


class Worker(BaseModel):
    """The thread that runs the model."""

    state: Literal["idle", "busy", "hung", "dead"]
    busy_seconds: Annotated[float, Field(description="time in the current call")]


class Device(BaseModel):
    """The device of the model."""

    name: str
    state: Annotated[
        Literal["ok", "failed", "unknown"],
        Field(description="unknown while the worker does not respond"),
    ]


class Health(ServerInfo):
    """The model, and the state of worker and device."""

    status: Literal["ok", "unhealthy"]
    worker: Worker
    device: Device


class Problem(BaseModel):
    """An error, in one sentence."""

    detail: str


class OpenAIError(BaseModel):
    """An error in OpenAI's protocol."""

    message: Annotated[str, Field(description="one sentence")]
    type: Literal[
        "invalid_request_error", "authentication_error", "rate_limit_error", "server_error"
    ]
    param: Annotated[str | None, Field(description="the field at fault")]
    code: str | None


class OpenAIProblem(BaseModel):
    """The body of an error in OpenAI's protocol."""

    error: OpenAIError


class Unhealthy(Problem):
    """What is wrong; with too many connections, only `detail`."""

    status: Literal["unhealthy"] = "unhealthy"
    worker: Worker | None = None
    device: Device | None = None
