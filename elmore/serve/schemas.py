"""What a request may say and what an answer is, as pydantic and OpenAPI know it."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

MAX_CHARACTERS = 20_000
MAX_TOKENS = 2048
"""Of one text; a batch of the model is at least as large."""
MAX_NEIGHBORS = 100

String = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Token = Annotated[str, Field(min_length=1, max_length=1000)]
Tokens = Annotated[list[Token], Field(max_length=MAX_TOKENS)]
Texts = Annotated[
    list[String | Tokens],
    Field(
        description="strings, or lists of tokens",
        examples=[["I left it at the bank .", ["a", "list", "of", "tokens"]]],
    ),
]


def _whole(value: object) -> object:
    """Take 1.0 for 1: in JSON they are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = BeforeValidator(_whole)  # behind the bounds, or OpenAPI does not tell of them


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class EmbedRequest(_Request):
    """Texts whose words get vectors."""

    texts: Texts
    layers: Literal["average", "all", "top"] | int = "average"


def embed_request(num_layers: int, max_texts: int) -> type[EmbedRequest]:
    """Give the request as a model of so many layers takes it."""
    layer = Annotated[int, Field(ge=0, lt=num_layers), Whole]
    about = "the mean of the layers, all of them, the last, or one by its number"
    choice = Annotated[Literal["average", "all", "top"] | layer, Field(description=about)]
    return create_model(
        "EmbedRequest",
        __base__=EmbedRequest,
        __doc__=EmbedRequest.__doc__,
        texts=(Annotated[Texts, Field(max_length=max_texts)], ...),
        layers=(choice, "average"),
    )


class TextsRequest(_Request):
    """Texts."""

    texts: Texts


def texts_request(max_texts: int) -> type[TextsRequest]:
    """Give the request with at most so many texts."""
    return create_model(
        "TextsRequest",
        __base__=TextsRequest,
        __doc__=TextsRequest.__doc__,
        texts=(Annotated[Texts, Field(max_length=max_texts)], ...),
    )


class NeighborsRequest(_Request):
    """A sentence with one word in brackets."""

    text: Annotated[str, Field(max_length=MAX_CHARACTERS, examples=["the [play] was a success ."])]
    k: Annotated[int, Field(ge=1, le=MAX_NEIGHBORS, description="how many"), Whole] = 10


class EmbeddedSentence(BaseModel):
    """Words and their vectors."""

    tokens: list[str]
    vectors: Annotated[
        list[list[float]] | list[list[list[float]]],
        Field(description="(tokens, width), with all layers (layers, tokens, width)"),
    ]


class EmbedAnswer(BaseModel):
    """A sentence for each text, in order."""

    sentences: list[EmbeddedSentence]


class EncodeAnswer(BaseModel):
    """A vector for each text, in order."""

    vectors: list[list[float]]


class ScoredSentence(BaseModel):
    """Words, and natural logarithms of how likely each was."""

    tokens: list[str]
    forward: Annotated[list[float], Field(description="given all that stands before")]
    backward: Annotated[list[float], Field(description="given all that stands after")]
    known: Annotated[list[bool], Field(description="others are scored as <UNK>")]


class ScoreAnswer(BaseModel):
    """A sentence for each text, in order."""

    sentences: list[ScoredSentence]


class Use(BaseModel):
    """A word in a sentence of the corpus."""

    word: str
    tokens: list[str]
    position: int
    similarity: float
    line: int


class NeighborsAnswer(BaseModel):
    """The nearest first."""

    word: str
    neighbors: list[Use]


class Served(BaseModel):
    """What runs here."""

    model: str
    width: int
    layers: int
    index: Annotated[bool, Field(description="whether /neighbors answers")]
    scores: Annotated[bool, Field(description="whether /score answers")]
    version: str


class Worker(BaseModel):
    """The thread that works with the model."""

    state: Literal["idle", "busy", "hung", "dead"]
    busy_seconds: Annotated[float, Field(description="that it has been at one piece of work")]


class Device(BaseModel):
    """What the model runs on."""

    name: str
    state: Annotated[
        Literal["ok", "failed", "unknown"],
        Field(description="unknown while the worker does not answer"),
    ]


class Health(Served):
    """What runs here, and how it is."""

    status: Literal["ok", "unhealthy"]
    worker: Worker
    device: Device


class Problem(BaseModel):
    """Why there is no other answer: one sentence."""

    detail: str


class Unhealthy(Problem):
    """What is wrong; with too many connections, only that."""

    status: Literal["unhealthy"] = "unhealthy"
    worker: Worker | None = None
    device: Device | None = None
