"""OpenAI's protocol, asked by its own client and by LangChain's, and refused in its own words."""

import base64
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import elmore
from elmore.embed import pooling
from elmore.serve.limits import Limits
from tests.support import doc_blocks
from tests.support.live_server import Slow, engine_of, read_all, run_server
from tests.support.toy_pooling import make_pooling
from tests.support.waiting import wait_until

TEXTS = ["Two ships can't wait .", "a storm", "the river " * 40]
EXACT = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def openai(client, model_id):
    """The official client."""
    package = pytest.importorskip("openai", reason="the openai client is not installed")
    with package.OpenAI(base_url=f"{client.url}/v1", api_key="unused", max_retries=0) as result:
        yield result


@pytest.fixture(scope="module")
def model_id(client):
    return client.get("/health").json["model"]


@pytest.fixture(scope="module")
def expected(embedder):
    """Vectors of length 1."""
    return pooling.normalize(embedder.encode(TEXTS))


@pytest.mark.parametrize(
    "choice", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}]
)
def test_the_official_client_gets_the_vectors_of_encode(openai, model_id, expected, choice):
    result = openai.embeddings.create(input=TEXTS, model=model_id, **choice)
    vectors = [each.embedding for each in result.data]
    if "base64" in choice.values():
        vectors = [np.frombuffer(base64.b64decode(each), "<f4") for each in vectors]
    np.testing.assert_allclose(vectors, expected, **EXACT)
    assert [each.index for each in result.data] == [0, 1, 2]
    assert {each.object for each in result.data} == {"embedding"}
    assert (result.object, result.model) == ("list", model_id)
    assert (result.usage.prompt_tokens, result.usage.total_tokens) == (88, 88)  # 6 + 2 + 80


def test_one_string_is_one_text(openai, model_id, expected):
    result = openai.embeddings.create(input=TEXTS[0], model=model_id, user="somebody")
    np.testing.assert_allclose([each.embedding for each in result.data], expected[:1], **EXACT)
    assert result.usage.total_tokens == 6


def test_an_empty_text_is_a_vector_of_zeros(client, embedder, model_id):
    answer = client.post("/v1/embeddings", {"input": "", "model": model_id}).json
    assert answer["data"][0]["embedding"] == [0.0] * embedder.width
    assert answer["usage"] == {"prompt_tokens": 0, "total_tokens": 0}


def test_the_models_are_listed(openai, model_id):
    (model,) = openai.models.list().data
    assert (model.id, model.object, model.owned_by) == (model_id, "model", "elmore")
    assert model.created > 0


def test_a_model_is_asked_for_by_its_name(openai, client, model_id):
    import openai as package

    assert openai.models.retrieve(model_id) == openai.models.list().data[0]
    for name in ("other", "a/b", f"{model_id}/"):
        with pytest.raises(package.NotFoundError, match="this server has no") as refused:
            openai.models.retrieve(name)
        assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert b'/v1/models/{model:path}"' in client.get("/metrics").body


def test_the_pooling_of_the_model_is_used(embedder):
    elmo = elmore.Embedder(replace(embedder.bundle, poolings={"toy": make_pooling(embedder)}))
    with run_server(engine_of(elmo)) as client:
        body = {"input": TEXTS, "model": client.get("/health").json["model"]}
        data = client.post("/v1/embeddings", body).json["data"]
    wanted = pooling.normalize(elmo.encode(TEXTS))
    np.testing.assert_allclose([each["embedding"] for each in data], wanted, rtol=1e-4, atol=1e-5)


def test_vectors_are_truncated_where_their_pooling_allows_it(embedder):
    toy = replace(make_pooling(embedder), truncatable=True)
    elmo = elmore.Embedder(replace(embedder.bundle, poolings={"toy": toy}))
    vectors = elmo.encode(TEXTS)
    with run_server(engine_of(elmo)) as client:
        body = {"input": TEXTS, "model": client.get("/health").json["model"]}
        for dimensions in (1, toy.width - 1, toy.width):
            data = client.post("/v1/embeddings", body | {"dimensions": dimensions}).json["data"]
            wanted = pooling.normalize(vectors[:, :dimensions])
            result = [each["embedding"] for each in data]
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
        for dimensions in (0, -1, toy.width + 1):
            answer = client.post("/v1/embeddings", body | {"dimensions": dimensions})
            assert answer.status == 400
            assert f"found {dimensions}, expected 1 to {toy.width}" in error(answer)["message"]


def test_the_vectors_of_the_bundled_model_can_be_truncated():
    """The directions of its pooling come in the order of their strength."""
    (pooling_,) = elmore.load().poolings.values()
    assert pooling_.truncatable
    strength = np.linalg.norm(pooling_.dense, axis=1)
    assert strength[:64].mean() > 1.3 * strength[-64:].mean()


def test_many_texts_come_in_pieces(client, embedder, model_id):
    texts = [f"{number} ships wait" for number in range(256)]
    body = {"input": texts, "model": model_id, "encoding_format": "base64"}
    data = client.post("/v1/embeddings", body).json["data"]
    vectors = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in data]
    np.testing.assert_allclose(vectors, pooling.normalize(embedder.encode(texts)), **EXACT)


def test_langchain_gets_the_vectors_of_encode(client, model_id, expected):
    reason = "langchain-openai is not installed"
    langchain = pytest.importorskip("langchain_openai", reason=reason)
    connector = langchain.OpenAIEmbeddings(
        model=model_id,
        base_url=f"{client.url}/v1",
        api_key="unused",
        check_embedding_ctx_length=False,  # else it sends token ids
    )
    np.testing.assert_allclose(connector.embed_documents(TEXTS), expected, **EXACT)
    np.testing.assert_allclose(connector.embed_query(TEXTS[1]), expected[1], **EXACT)


@pytest.mark.parametrize("block", doc_blocks.python_blocks(doc_blocks.DOCS / "serve.md"))
def test_the_python_blocks_of_the_page_run(client, model_id, block):
    package = "langchain_openai" if "langchain_openai" in block else "openai"
    pytest.importorskip(package, reason=f"{package} is not installed")
    here = block.replace("http://127.0.0.1:8000", client.url).replace('"english"', repr(model_id))
    doc_blocks.run_block(here)


def error(answer) -> dict:
    """Return the error of a body in the protocol's form."""
    assert list(answer.json) == ["error"]
    result = answer.json["error"]
    assert set(result) == {"message", "type", "param", "code"}
    assert "\n" not in result["message"]
    return result


IDS = "input: token ids are those of another model's tokenizer"


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"input": [1, 2, 3]}, "input", IDS),
        ({"input": [[1, 2], [3]]}, "input", IDS),
        ({"input": ["a", 2]}, "input", IDS),
        (
            {"input": 1},
            "input",
            "input: input should be a valid string, or input should be a valid",
        ),
        ({"input": None}, "input", "input: input should be"),
        ({"input": []}, "input", "input: list should have at least 1 item"),
        ({"input": [["a", "b"]]}, "input", "input.0: input should be a valid string"),
        ({"input": ["a"] * 257}, "input", "input: list should have at most 256 items"),
        ({"input": "a" * 20_001}, "input", "input: string should have at most 20000 characters"),
        ({"model": 1}, "model", "model: input should be a valid string, found 1"),
        (
            {"encoding_format": "int8"},
            "encoding_format",
            "encoding_format: input should be 'float'",
        ),
        ({"dimensions": 3}, "dimensions", "found 3, these vectors have 12 and cannot be truncated"),
        (
            {"dimensions": "3"},
            "dimensions",
            "dimensions: input should be a valid integer, found '3'",
        ),
        ({"truncate": True}, "truncate", "truncate: extra inputs are not permitted, found True"),
    ],
)
def test_what_is_not_a_valid_request_is_400_with_its_field(client, model_id, change, param, said):
    answer = client.post("/v1/embeddings", {"input": "a", "model": model_id} | change)
    assert answer.status == 400
    found = error(answer)
    assert said in found["message"]
    assert (found["type"], found["param"], found["code"]) == ("invalid_request_error", param, None)


@pytest.mark.parametrize(
    "choice", [{"dimensions": 12}, {"dimensions": None, "user": None, "encoding_format": None}]
)
def test_what_changes_nothing_is_accepted(client, model_id, choice):
    body = {"input": "a", "model": model_id} | choice
    assert client.post("/v1/embeddings", body).status == 200


def test_too_many_tokens_are_413(client, model_id):
    answer = client.post("/v1/embeddings", {"input": ["a", "a " * 3000], "model": model_id})
    assert answer.status == 413
    found = error(answer)
    assert found["message"].startswith("input.1: 3000 tokens, a text may have 2048")
    assert found["param"] == "input"


def test_the_official_client_raises_the_error_of_each_kind(openai, model_id):
    import openai as package

    create = openai.embeddings.create
    with pytest.raises(package.BadRequestError, match="token ids") as refused:
        create(input=[1, 2], model=model_id)
    assert refused.value.param == "input"
    with pytest.raises(package.NotFoundError, match="this server has no 'other', only") as refused:
        create(input="a", model="other")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(package.NotFoundError, match="no such route"):
        openai.chat.completions.create(model=model_id, messages=[])


def test_the_token_is_the_api_key(embedder):
    package = pytest.importorskip("openai", reason="the openai client is not installed")
    with run_server(engine_of(embedder), token="correct-horse") as client:
        url = f"{client.url}/v1"
        with package.OpenAI(base_url=url, api_key="correct-horse") as right:
            assert right.models.list().data
        with (
            package.OpenAI(base_url=url, api_key="wrong") as wrong,
            pytest.raises(package.AuthenticationError, match="requires a token"),
        ):
            wrong.models.list()
        assert error(client.get("/v1/models"))["type"] == "authentication_error"
        told = client.get("/openapi.json").json["paths"]["/v1/models"]["get"]
        schema = told["responses"]["401"]["content"]["application/json"]["schema"]
        assert schema["$ref"].endswith("/OpenAIProblem")


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"{}", {"Content_Type": "text/plain"}, 415),
        (b" " * (1 << 20) + b"{}", {}, 413),
    ],
)
def test_what_no_route_reads_is_refused_in_the_same_form(client, body, headers, status):
    answer = client.post("/v1/embeddings", body, **headers)
    assert answer.status == status
    assert error(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (b"Content-Length: 500\r\n\r\n{", "the body ended before it was complete"),
        (b"Transfer-Encoding: chunked\r\n\r\nnot hex\r\n", "not valid HTTP/1.1"),
    ],
)
def test_a_body_that_is_not_http_is_refused_in_the_same_form(client, rest, said):
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with client.connected() as connection:
        connection.sendall(head + rest)
        connection.shutdown(socket.SHUT_WR)
        answer, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["message"].startswith(said)


def test_other_routes_and_methods_below_v1_are_refused_in_the_same_form(client):
    assert error(client.get("/v1/nothing"))["message"] == "no such route; see /openapi.json"
    assert client.get("/v1/embeddings").status == 405
    assert error(client.get("/v1/embeddings"))["message"].endswith("not accept GET, only POST")


def test_a_full_queue_and_a_slow_answer_say_when_to_retry(embedder):
    slow = Slow(engine_of(embedder))
    limits = Limits(queue_tokens=20, batch_tokens=64, response_seconds=1)
    with run_server(slow, limits=limits) as client, ThreadPoolExecutor(2) as pool:
        body = {"input": "a " * 12, "model": client.get("/health").json["model"]}
        jobs = [pool.submit(client.post, "/v1/embeddings", body)]
        wait_until(lambda: slow.batches)
        jobs.append(pool.submit(client.post, "/v1/embeddings", body))
        wait_until(lambda: client.metric("elmore_queue_tokens"))
        full = client.post("/v1/embeddings", body)
        late = jobs[0].result()
        slow.gate.set()
        jobs[1].result()
    assert (full.status, error(full)["type"]) == (429, "rate_limit_error")
    assert (late.status, error(late)["type"]) == (503, "server_error")
    for answer in (full, late):
        assert int(answer.headers["Retry-After"]) >= 1


def test_a_fault_is_500_in_the_same_form(embedder):
    class Broken(Slow):
        def add(self, works):
            raise RuntimeError("secret words")

    with run_server(Broken(engine_of(embedder))) as client:
        body = {"input": "a", "model": client.get("/health").json["model"]}
        answer = client.post("/v1/embeddings", json.dumps(body).encode())
    assert answer.status == 500
    assert error(answer)["type"] == "server_error"
    assert "secret" not in error(answer)["message"]
