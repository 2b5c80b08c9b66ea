"""schemathesis reads our OpenAPI and looks for anything that does not keep to it."""

import itertools

import pytest

schemathesis = pytest.importorskip("schemathesis")

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

# Whether brackets hold one whole token is for the tokenizer to say, not for a schema.
TOO_STRICT = {"/neighbors": [positive_data_acceptance]}


def test_the_schema_names_every_route(client):
    paths = client.get("/openapi.json").json["paths"]
    assert set(paths) == {"/embed", "/encode", "/score", "/neighbors", "/health", "/metrics"}


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        *itertools.product(["/embed", "/encode", "/score", "/neighbors"], ["positive", "negative"]),
        ("/health", "positive"),
        ("/metrics", "positive"),
    ],
)
def test_every_answer_keeps_to_the_schema(client, path, mode):
    schema = schemathesis.openapi.from_url(f"{client.url}/openapi.json")
    (operation,) = [found.ok() for found in schema.include(path=path).get_all_operations()]
    kind = schemathesis.GenerationMode(mode)

    @given(operation.as_strategy(generation_mode=kind))
    @settings(
        max_examples=12,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        case.call_and_validate(excluded_checks=TOO_STRICT.get(path, []))

    ask()


@given(st.binary(max_size=200))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_answered_with_a_sentence(client, body):
    answer = client.post("/embed", body)
    assert answer.status in (200, 400, 422)
    assert answer.status == 200 or isinstance(answer.detail, str)


def test_the_bounds_of_numbers_are_in_the_schema(client):
    schemas = client.get("/openapi.json").json["components"]["schemas"]
    layer = schemas["EmbedRequest"]["properties"]["layers"]["anyOf"][1]
    assert (layer["minimum"], layer["exclusiveMaximum"]) == (0, 3)
    k = schemas["NeighborsRequest"]["properties"]["k"]
    assert (k["minimum"], k["maximum"]) == (1, 100)
