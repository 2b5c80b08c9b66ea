"""The routes: what is asked, and that the answers are those of the library."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow
import pytest

import elmore
from elmore.embed import pooling
from elmore.lm import scoring, substitutes
from elmore.serve import engine
from elmore.serve.limits import Limits
from tests.support import toy_corpus
from tests.support.live_server import Slow, SmallIndex, engine_of, run_server
from tests.support.toy_pooling import make_pooling
from tests.support.waiting import wait_until

EXACT = {"rtol": 0, "atol": 1e-5}
TEXTS = ["Two ships can't wait .", ["a", "storm"], "", "the river " * 40]


def test_embed_returns_the_vectors_of_the_embedder(client, embedder):
    result = client.post("/embed", {"texts": TEXTS}).json["sentences"]
    for sentence, expected in zip(result, embedder.embed(TEXTS), strict=True):
        assert sentence["tokens"] == expected.tokens
        vectors = np.array(sentence["vectors"]).reshape(-1, embedder.width)
        np.testing.assert_allclose(vectors, expected.vectors, **EXACT)


OFFSET_TEXTS = ["Two ships can't  wait .", ["a", "storm"], "", "naïve 🙂 ok"]


@pytest.mark.parametrize("path", ["/embed", "/score", "/tokenize"])
def test_offsets_cut_the_tokens_out_of_the_text(client, embedder, path):
    result = client.post(path, {"texts": OFFSET_TEXTS}).json["sentences"]
    assert [each["tokens"] for each in result] == [
        each.tokens for each in embedder.embed(OFFSET_TEXTS)
    ]
    for sentence, text in zip(result, OFFSET_TEXTS, strict=True):
        if isinstance(text, list):
            assert sentence["offsets"] is None
        else:
            assert [text[start:end] for start, end in sentence["offsets"]] == sentence["tokens"]


def test_tokenize_has_the_limits_of_the_other_routes(client):
    answer = client.post("/tokenize", {"texts": ["a", "a " * 3000]})
    assert answer.status == 413
    assert "texts.1: 3000 tokens, a text may have 2048" in answer.detail
    assert client.post("/tokenize", {"texts": [1]}).status == 422


@pytest.mark.parametrize("layers", ["average", "all", "top", 0, 1, 2, "cloze", "whitened"])
def test_every_choice_of_layers_comes_as_numpy_too(whitened, whitened_embedder, layers):
    body = {"texts": TEXTS, "layers": layers}
    answer = whitened.post("/embed", body, Accept="application/x-npy")
    assert answer.headers["Content-Type"] == "application/x-npy"
    array = np.load(io.BytesIO(answer.body), allow_pickle=False)
    expected = [each.vectors for each in whitened_embedder.embed(TEXTS, layers=layers)]
    np.testing.assert_allclose(array, np.concatenate(expected, axis=-2), **EXACT)
    lengths = [int(number) for number in answer.headers["X-Elmore-Lengths"].split(",")]
    assert lengths == [part.shape[-2] for part in expected]


def test_arrow_comes_with_its_tokens(client, embedder):
    answer = client.post(
        "/embed", {"texts": TEXTS[:2]}, Accept="application/vnd.apache.arrow.stream"
    )
    rows = pyarrow.ipc.open_stream(answer.body).read_all().to_pylist()
    assert [row["tokens"] for row in rows] == [each.tokens for each in embedder.embed(TEXTS[:2])]


def test_encode_gives_one_vector_for_each_text(client, embedder):
    expected = embedder.encode(TEXTS)
    result = client.post("/encode", {"texts": TEXTS})
    np.testing.assert_allclose(result.json["vectors"], expected, **EXACT)
    npy = client.post("/encode", {"texts": TEXTS}, Accept="application/x-npy")
    np.testing.assert_allclose(np.load(io.BytesIO(npy.body)), expected, **EXACT)


def test_encode_uses_the_poolings_of_the_model(embedder):
    pooling = make_pooling(embedder)
    elmo = elmore.Embedder(replace(embedder.bundle, poolings={"toy": pooling}))
    with run_server(engine_of(elmo)) as client:
        for choice in ({}, {"pool": "toy"}, {"pool": "mean"}, {"pool": "max"}):
            result = client.post("/encode", {"texts": TEXTS} | choice).json["vectors"]
            wanted = elmo.encode(TEXTS, pool=choice.get("pool"))
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
        assert client.post("/encode", {"texts": ["a"], "pool": "other"}).status == 422


def test_other_requests_are_answered_while_texts_are_pooled(client, monkeypatch):
    began, may_end = threading.Event(), threading.Event()
    pool_texts = pooling.pool_texts

    def wait(*arguments):
        began.set()
        assert may_end.wait(60)
        return pool_texts(*arguments)

    monkeypatch.setattr(pooling, "pool_texts", wait)
    with ThreadPoolExecutor(2) as pool:
        encoding = pool.submit(client.post, "/encode", {"texts": ["a storm"]})
        try:
            assert began.wait(60)
            assert pool.submit(client.get, "/health").result(timeout=60).status == 200
        finally:
            may_end.set()
        assert encoding.result().status == 200


def test_no_text_gives_no_vectors(client, embedder):
    assert client.post("/embed", {"texts": []}).json == {"sentences": []}
    npy = client.post("/encode", {"texts": []}, Accept="application/x-npy")
    assert np.load(io.BytesIO(npy.body)).shape == (0, embedder.width)


def test_many_texts_at_once_agree_with_the_embedder(client, embedder):
    texts = toy_corpus.sentences(100, seed=3)
    answer = client.post("/encode", {"texts": texts}, Accept="application/x-npy")
    np.testing.assert_allclose(np.load(io.BytesIO(answer.body)), embedder.encode(texts), **EXACT)


def test_concurrent_requests_get_what_each_would_get_alone(client, embedder):
    groups = [toy_corpus.sentences(1 + number % 3, seed=number) for number in range(40)]

    def ask(group):
        return client.post("/encode", {"texts": group}).json["vectors"]

    with ThreadPoolExecutor(16) as pool:
        for group, result in zip(groups, pool.map(ask, groups), strict=True):
            np.testing.assert_allclose(result, embedder.encode(group), **EXACT)


def test_requests_that_wait_together_run_as_one_batch(embedder):
    slow = Slow(engine_of(embedder))
    with run_server(slow) as client, ThreadPoolExecutor(9) as pool:
        first = pool.submit(client.post, "/encode", {"texts": ["a storm"]})
        wait_until(lambda: slow.batches)
        others = [pool.submit(client.post, "/encode", {"texts": ["a b c"]}) for _ in range(8)]
        wait_until(lambda: client.metric("elmore_queue_tokens") == 8 * (3 + 2 + 2))
        slow.gate.set()
        assert {job.result().status for job in (first, *others)} == {200}
    assert slow.batches == [1, 8]


@pytest.mark.parametrize("times", [1, 40])  # in one part, in several
def test_score_gives_both_directions_of_every_word(client, embedder, times):
    texts = ["two ships wait .", "a xylophone"] * times
    result = client.post("/score", {"texts": texts}).json["sentences"]
    words = [each.tokens for each in embedder.embed(texts)]
    for sentence, expected in zip(result, scoring.score(embedder.bundle, words), strict=True):
        assert sentence["tokens"] == expected.tokens
        assert sentence["known"] == expected.known
        np.testing.assert_allclose(sentence["forward"], expected.forward, **EXACT)
        np.testing.assert_allclose(sentence["backward"], expected.backward, **EXACT)


def test_substitutes_are_the_most_probable_words_at_a_place(client, embedder):
    tokens = ["two", "ships", "wait", "."]
    body = {"tokens": tokens, "position": 1, "count": 4}
    found = client.post("/substitutes", body).json
    (expected,) = substitutes.predict_substitutes(embedder.bundle, tokens, [1], count=4)
    for name, words in found.items():
        expected_words, log_probs = zip(*getattr(expected, name), strict=True)
        assert tuple(each["word"] for each in words) == expected_words
        np.testing.assert_allclose([each["log_prob"] for each in words], log_probs, **EXACT)
    assert set(found) == {"forward", "backward", "both"}


def test_a_place_outside_the_sentence_is_refused(client):
    answer = client.post("/substitutes", {"tokens": ["two", "ships"], "position": 2})
    assert answer.status == 422
    assert answer.detail == "position: 2 is outside a sentence of 2 tokens"
    answer = client.post("/substitutes", {"tokens": ["two", "ships"], "position": 1e300})
    assert answer.status == 422
    assert len(answer.detail) < 100


def test_neighbors_gives_uses_with_their_sentences(client):
    result = client.post("/neighbors", {"text": "two [ships] come", "k": 3}).json
    assert result["word"] == "ships"
    assert result["neighbors"][1] == {
        "word": "ships",
        "tokens": ["two", "ships", "wait", "."],
        "position": 1,
        "similarity": 0.5,
        "line": 0,
    }
    assert len(result["neighbors"]) == 3


def test_a_query_is_split_by_the_tokenizer_of_the_model(embedder):
    elmo = elmore.Embedder(embedder.bundle, tokenizer=str.split)
    with run_server(engine_of(elmo, index=True)) as client:
        answer = client.post("/neighbors", {"text": "they [can't] wait"})
    assert (answer.status, answer.json.get("word")) == (200, "can't")


def test_a_query_without_a_marked_word_explains_how_to_mark_one(client):
    answer = client.post("/neighbors", {"text": "two ships"})
    assert answer.status == 422
    assert answer.detail.startswith("text: 'two ships': no word is marked; mark one word, as in")


def test_a_server_without_an_index_or_a_softmax_says_what_to_do(bare):
    answer = bare.post("/neighbors", {"text": "two [ships]"})
    assert answer.status == 409
    assert "elmore serve --index" in answer.detail
    answer = bare.post("/score", {"texts": ["two ships"]})
    assert answer.status == 409
    assert "elmore finetune" in answer.detail
    answer = bare.post("/substitutes", {"tokens": ["two", "ships"], "position": 1})
    assert answer.status == 409


def test_health_says_what_runs(client, bare, whitened, embedder):
    result = client.get("/health").json
    assert result == {
        "status": "ok",
        "worker": {"state": "idle", "busy_seconds": 0.0},
        "device": {"name": "cpu", "state": "ok"},
        "model": embedder.bundle.card.name or "unnamed",
        "width": 12,
        "layers": 3,
        "index": True,
        "scores": True,
        "whitening": False,
        "version": elmore.__version__,
    }
    assert not bare.get("/health").json["index"]
    assert not bare.get("/health").json["scores"]
    assert whitened.get("/health").json["whitening"]


@pytest.mark.parametrize("layers", [3, "whitened"])
def test_a_layer_the_model_does_not_have_is_refused(client, layers):
    answer = client.post("/embed", {"texts": ["a"], "layers": layers})
    assert answer.status == 422
    assert "layers: input should be" in answer.detail


def test_a_full_queue_is_429_with_retry_after(embedder):
    slow = Slow(engine_of(embedder))
    limits = Limits(queue_tokens=20, batch_tokens=64)
    with run_server(slow, limits=limits) as client, ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(client.post, "/encode", {"texts": ["a"]})]
        wait_until(lambda: slow.batches)
        jobs.append(pool.submit(client.post, "/encode", {"texts": ["a " * 12]}))
        wait_until(lambda: client.metric("elmore_queue_tokens"))
        refused = client.post("/encode", {"texts": ["a " * 12]})
        slow.gate.set()
        assert [job.result().status for job in jobs] == [200, 200]
    assert refused.status == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "retry" in refused.detail


@pytest.mark.parametrize(
    ("path", "body", "constant"),
    [
        ("/substitutes", {"tokens": ["a"], "position": 0}, "WORDS_PER_TOKEN"),
        ("/score", {"texts": ["a"]}, "SCORED_WORDS_PER_TOKEN"),
        ("/neighbors", {"text": "[a]"}, "OCCURRENCES_PER_TOKEN"),
    ],
)
def test_short_requests_fill_the_queue_by_what_they_cost(
    embedder, monkeypatch, path, body, constant
):
    monkeypatch.setattr(engine, constant, 1)
    cost = len(embedder.bundle.vocabulary)
    monkeypatch.setattr(SmallIndex, "search_cost", cost)
    slow = Slow(engine_of(embedder, index=True))
    limits = Limits(queue_tokens=2 * cost, batch_tokens=cost)
    with run_server(slow, limits=limits) as client, ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(client.post, path, body)]
        wait_until(lambda: slow.batches)
        jobs.append(pool.submit(client.post, path, body))
        wait_until(lambda: client.metric("elmore_queue_tokens") > cost)
        refused = client.post(path, body)
        slow.gate.set()
        assert [job.result().status for job in jobs] == [200, 200]
    assert refused.status == 429


def test_a_request_that_waits_too_long_is_refused(embedder):
    slow = Slow(engine_of(embedder))
    with run_server(slow, limits=Limits(response_seconds=0.2)) as client:
        answer = client.post("/encode", {"texts": ["a"]})
        slow.gate.set()
    assert answer.status == 503
    assert answer.headers["Retry-After"]
    assert "0.2 seconds" in answer.detail


def test_too_many_tokens_are_refused_and_counted(embedder):
    with run_server(engine_of(embedder), limits=Limits(tokens=10)) as client:
        answer = client.post("/encode", {"texts": ["a b c d", "a b c d", "a b c d"]})
    assert answer.status == 413
    assert "texts: 12 tokens in the first 3 texts, a request may have 10" in answer.detail


def test_a_text_of_too_many_tokens_is_named(client):
    answer = client.post("/encode", {"texts": ["a", "a " * 3000]})
    assert answer.status == 413
    assert "texts.1: 3000 tokens, a text may have 2048" in answer.detail


def test_only_clients_with_the_token_are_served(embedder):
    secret = "correct-horse"
    with run_server(engine_of(embedder), token=secret) as client:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {secret}"}):
            answer = client.post("/encode", {"texts": ["a"]}, **header)
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert "Authorization: Bearer" in answer.detail
        assert client.get("/metrics").status == 401
        right = {"Authorization": f"Bearer {secret}"}
        assert client.post("/encode", {"texts": ["a"]}, **right).status == 200
        assert client.get("/metrics", **right).status == 200
        for path in ("/", "/page.js", "/health", "/openapi.json"):
            assert client.get(path).status == 200, path
        told = client.get("/openapi.json").json["paths"]
        assert told["/encode"]["post"]["security"]
        assert "security" not in told["/health"]["get"]
