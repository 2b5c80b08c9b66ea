"""schemathesis reads our OpenAPI and looks for anything that does not keep to it."""

import http.client
import io
import itertools
import json
import os
import re

import numpy as np
import pyarrow
import pytest

schemathesis = pytest.importorskip("schemathesis")

import requests  # noqa: E402 -- it comes with schemathesis
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from elmore.serve.responses import ARROW, JSON, LENGTHS, MEDIA_TYPES, NPY  # noqa: E402
from tests.support.sweeps import pick  # noqa: E402

EXAMPLES = int(os.environ.get("ELMORE_EXAMPLES", pick(6, 15)))
"""Of what is right for each route, and three times as many of what is not."""

REFUSED = ["400", "401", "404", "405", "406", "408", "409", "413", "415", "422", "429"]
CONFIG = {
    "checks": {
        "negative_data_rejection": {"expected-statuses": REFUSED},
        # What is too much for one request is for the tokenizer to say, not for a schema.
        "positive_data_acceptance": {"expected-statuses": ["2xx", "413"]},
    },
}


def test_the_schema_names_every_route(client):
    paths = client.get("/openapi.json").json["paths"]
    work = {"/embed", "/encode", "/score", "/substitutes", "/tokenize", "/neighbors"}
    openai = {"/v1/embeddings", "/v1/models", "/v1/models/{model}"}
    assert set(paths) == work | openai | {"/health", "/metrics"}


@pytest.fixture(scope="module")
def schema(client):
    config = schemathesis.Config.from_dict(CONFIG)
    return schemathesis.openapi.from_url(f"{client.url}/openapi.json", config=config)


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(
    ("path", "forms"),
    [
        ("/embed", MEDIA_TYPES),
        ("/encode", MEDIA_TYPES),
        ("/score", (JSON,)),
        ("/substitutes", (JSON,)),
        ("/tokenize", (JSON,)),
        ("/neighbors", (JSON,)),
        ("/v1/embeddings", (JSON,)),
    ],
)
def test_every_answer_keeps_to_the_schema(schema, path, forms, mode):
    cases = schema[path]["POST"].as_strategy(generation_mode=schemathesis.GenerationMode(mode))
    seen, accepted = set(), itertools.cycle(forms)

    with requests.Session() as session:  # one connection for all of it

        @settings(
            max_examples=EXAMPLES if mode == "positive" else 3 * EXAMPLES,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def ask(case):
            media_type = next(accepted)
            if path == "/neighbors" and mode == "positive":
                case.body["text"] = marked(case.body["text"])
            if path == "/substitutes" and mode == "positive":
                case.body["position"] = min(case.body["position"], len(case.body["tokens"]) - 1)
            answer = case.call(session=session, headers={"Accept": media_type})
            case.validate_response(answer)
            # Not as the "default" of OpenAI's routes.
            assert str(answer.status_code) in case.operation.definition.raw["responses"]
            seen.add((media_type, answer.status_code))
            if answer.status_code == 200:
                check_form(answer, media_type, len(case.body.get("texts", ())))
            elif path.startswith("/v1/"):
                assert isinstance(answer.json()["error"]["message"], str)
            else:
                assert isinstance(answer.json()["detail"], str)

        ask()
    if mode == "positive":
        assert {(media_type, 200) for media_type in forms} <= seen


def marked(text: str) -> str:
    """Put one word into brackets: that there is one is for the tokenizer to say too."""
    return re.sub(r"[\[\]\\]", "", text)[:19_990] + " [storm]"


def check_form(answer, media_type: str, texts: int) -> None:
    """Read an answer as what it says it is."""
    assert answer.headers["content-type"][0] == media_type
    if media_type == ARROW:
        assert pyarrow.ipc.open_stream(answer.content).read_all().num_rows == texts
    elif media_type == NPY:
        array = np.load(io.BytesIO(answer.content), allow_pickle=False)
        lengths = answer.headers.get(LENGTHS.lower(), [None])[0]
        if lengths is None:
            assert len(array) == texts
        else:
            assert sum(map(int, filter(None, lengths.split(",")))) == array.shape[-2]


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models"])
def test_the_state_of_the_server_keeps_to_the_schema(schema, path):
    schema[path]["GET"].Case().call_and_validate()


GOOD = json.dumps({"texts": ["a storm"]}).encode()
ASKED = {
    "vectors": (("POST", "/encode", GOOD), 200),
    "scores": (("POST", "/score", GOOD), 200),
    "health": (("GET", "/health", None), 200),
    "health with a body": (("GET", "/health", GOOD), 200),
    "no JSON": (("POST", "/encode", b"{"), 400),
    "no texts": (("POST", "/embed", b"{}"), 422),
    "no route": (("POST", "/nothing", GOOD), 404),
    "no method": (("PUT", "/encode", GOOD), 405),
    "head": (("HEAD", "/health", None), 405),
    "too large": (("POST", "/encode", b" " * (1 << 20) + b"{}"), 413),
}


@given(st.lists(st.sampled_from(sorted(ASKED)), min_size=2, max_size=12))
@settings(max_examples=EXAMPLES)
def test_one_connection_answers_whatever_is_asked_in_whatever_order(client, asked):
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    kind = {"Content-Type": "application/json"}
    for name in asked:
        question, expected = ASKED[name]
        connection.request(*question, kind)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == expected, name
    connection.close()


@given(st.binary(max_size=200))
@settings(max_examples=pick(6, 30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_answered_with_a_sentence(client, body):
    answer = client.post("/embed", body)
    assert answer.status in (200, 400, 422)
    assert answer.status == 200 or isinstance(answer.detail, str)


def test_the_schema_has_no_error_that_is_never_sent(client):
    document = client.get("/openapi.json").json
    for path, methods in document["paths"].items():
        statuses = {status for method in methods.values() for status in method["responses"]}
        assert not (path.startswith("/v1/") and "422" in statuses), path
    assert not [name for name in document["components"]["schemas"] if "ValidationError" in name]


def test_the_bounds_of_numbers_are_in_the_schema(client):
    schemas = client.get("/openapi.json").json["components"]["schemas"]
    layer = schemas["EmbedRequest"]["properties"]["layers"]["anyOf"][1]
    assert (layer["minimum"], layer["exclusiveMaximum"]) == (0, 3)
    k = schemas["NeighborsRequest"]["properties"]["k"]
    assert (k["minimum"], k["maximum"]) == (1, 100)
