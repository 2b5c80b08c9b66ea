"""Requests as pydantic models: what a refusal may cost."""

import pytest
from pydantic import BaseModel, ValidationError

from elmore.serve import schemas
from elmore.serve.openai_api import embeddings_request

EMBED = schemas.embed_request(3, 256, whitened=True)
ENCODE = schemas.encode_request(["mean"], 256)
TEXTS = schemas.texts_request(256)
OPENAI = embeddings_request("model", range(1, 9), 256)
EXTRA = {f"key{i}": 1 for i in range(1000)}


@pytest.mark.parametrize(
    ("request_type", "body"),
    [
        *((each, {"texts": [[1] * 1000] * 100}) for each in (EMBED, ENCODE, TEXTS)),
        *((each, {"texts": [1] * 200}) for each in (EMBED, ENCODE, TEXTS)),
        (TEXTS, {"texts": [[""] * 1000] * 100}),
        (TEXTS, {"texts": ["a"], **EXTRA}),
        (OPENAI, {"model": "model", "input": [[]] * 200}),
        (OPENAI, {"model": "model", "input": "a", **EXTRA}),
        (schemas.NeighborsRequest, {"text": "[a]", **EXTRA}),
        (schemas.SubstitutesRequest, {"tokens": [1] * 2000, "position": 0}),
        (schemas.SubstitutesRequest, {"tokens": ["a"], "position": 0, **EXTRA}),
    ],
)
def test_a_body_of_many_faults_is_refused_at_the_first(request_type: type[BaseModel], body: dict):
    with pytest.raises(ValidationError) as refused:
        request_type.model_validate(body)
    assert 1 <= refused.value.error_count() <= 2  # by each side of a union


def test_the_first_unknown_field_is_the_one_that_is_refused():
    with pytest.raises(ValidationError) as refused:
        TEXTS.model_validate({"more": 1, "texts": ["a"], **EXTRA})
    assert [error["loc"] for error in refused.value.errors()] == [("more",)]
