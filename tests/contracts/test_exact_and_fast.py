"""precision="fast": near to exact on real text, and exact where it would not be fast."""

import logging
import lzma
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import elmore
from elmore.embed.embedder import Embedder
from elmore.embed.jobs import job as jobs
from elmore.embed.jobs import journal, layer_cache
from elmore.errors import ConfigError, DataError
from elmore.model import native
from elmore.text import sentences
from elmore.text.tokenizers import penn
from elmore.weights import warm
from elmore.weights.digest import model_digest
from tests.support import simulated_bf16, toy_tasks
from tests.support.cli_runner import run_elmore
from tests.support.sweeps import pick

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]
BYTES = pytest.mark.skipif(
    not native.has_int8_dot(), reason="this CPU has no dot products of bytes"
)
numbers = pytest.mark.parametrize(
    ("device", "give"),
    [
        pytest.param("cpu", simulated_bf16.simulate_bf16_units, id="cpu"),
        pytest.param("cpu", lambda patch: None, marks=BYTES, id="cpu in int8"),
        pytest.param("cuda", simulated_bf16.simulate_bf16_units, marks=GPU, id="cuda"),
    ],
)
JOB = {
    "layers": "all",
    "pool": None,
    "dtype": "float32",
    "tokenized": False,
    "split": False,
    "initial_state": "zero",
    "errors": "strict",
    "column": "text",
}


@pytest.fixture(scope="module")
def english() -> Embedder:
    return elmore.load(device="cpu")


@pytest.fixture
def small(tmp_path) -> Path:
    return toy_tasks.bilm(tmp_path / "bilm")


def written() -> list[list[str]]:
    return [line.split() for line in warm.TEXT.strip().splitlines()]


def news() -> list[list[str]]:
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: the corpus is not here")
    path = Path(os.environ["ELMORE_DATA"]) / "corpus" / "valid.txt.xz"
    result: list[list[str]] = []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        while len(result) < 24:
            line = next(file)
            found = [penn(line[a:b]).words for a, b in sentences.split_sentences(line)]
            # the simulation takes a fifth of a second for each token of the longest sentence
            result += [words for words in found if len(words) <= pick(12, 1000)]
    return result[:24]


def vectors(elmo: Embedder, texts, **choices) -> list[np.ndarray]:
    return [result.vectors for result in elmo.embed(texts, layers="all", **choices)]


def many(count: int) -> list[list[str]]:
    rng = np.random.default_rng(1)
    words = ["the", "bank", "of", "naïve", "日本", "reconstruction"]
    return [list(rng.choice(words, rng.integers(0, 30))) for _ in range(count)]


@numbers
@pytest.mark.parametrize("text", [written, news])
def test_every_layer_of_real_text_is_near_to_exact(monkeypatch, english, text, device, give):
    give(monkeypatch)
    fast = Embedder(english.bundle, device=device, precision="fast")
    assert fast.is_fast
    words = text()
    exact = np.concatenate(vectors(Embedder(english.bundle, device=device), words), axis=1)
    result = np.concatenate(vectors(fast, words), axis=1)
    english.to("cpu")
    assert result.dtype == np.float32
    lengths = np.linalg.norm(exact, axis=2) * np.linalg.norm(result, axis=2)
    cosines = (exact * result).sum(axis=2) / lengths  # (layers, tokens)
    assert (cosines.mean(axis=1) >= 0.9995).all()
    assert (np.percentile(cosines, 1, axis=1) >= 0.998).all()
    if give is simulated_bf16.simulate_bf16_units:
        np.testing.assert_array_equal(result[0], exact[0])  # the words' own encoder is exact
    assert (result[1:] != exact[1:]).any(axis=(1, 2)).all()


@numbers
def test_other_texts_change_no_bit_in_fast_precision(monkeypatch, small, device, give):
    give(monkeypatch)
    elmo = elmore.load(small, device=device, precision="fast")
    texts = many(100)
    together = [result.vectors.tobytes() for result in elmo.stream(texts, layers="all")]
    other = Embedder(
        elmo.bundle, device=device, precision="fast", token_budget=300, cache_megabytes=0
    )
    result = [result.vectors.tobytes() for result in other.stream(texts[::-1], layers="all")]
    assert result[::-1] == together
    alone = [next(elmo.stream([text], layers="all")).vectors.tobytes() for text in texts[:5]]
    assert alone == together[:5]


def test_without_units_fast_is_exact_to_the_bit_and_says_so(monkeypatch, small, caplog):
    simulated_bf16.disable_fast_units(monkeypatch)
    with caplog.at_level(logging.WARNING):
        fast = elmore.load(small, device="cpu", precision="fast")
    assert caplog.messages == [
        "precision 'fast' is exact here: no units for bf16 or int8 on device 'cpu'"
    ]
    assert fast.precision == "fast"
    assert not fast.is_fast
    exact = elmore.load(small, device="cpu")
    for a, b in zip(vectors(fast, many(80)), vectors(exact, many(80)), strict=True):
        assert a.tobytes() == b.tobytes()


def test_fast_that_cannot_be_built_is_exact_and_says_why(monkeypatch, small, caplog):
    simulated_bf16.disable_fast_units(monkeypatch)
    monkeypatch.setattr(native, "why_missing", lambda: "there is no C compiler 'cc' here")
    assert not elmore.load(small, device="cpu", precision="fast").is_fast
    assert caplog.messages == [
        "precision 'fast' is exact here: no units for bf16 on device 'cpu', and the native "
        "library is not used: there is no C compiler 'cc' here"
    ]


def test_exact_is_the_default_and_logs_no_warning(monkeypatch, small, caplog):
    simulated_bf16.simulate_bf16_units(monkeypatch)
    elmo = elmore.load(small, device="cpu")
    assert elmo.precision == "exact"
    assert not elmo.is_fast
    assert not caplog.messages


def test_the_model_that_was_given_stays_exact(monkeypatch, small):
    simulated_bf16.simulate_bf16_units(monkeypatch)
    elmo = elmore.load(small, device="cpu")
    before = vectors(elmo, many(3))
    fast = Embedder(elmo.bundle, device="cpu", precision="fast")
    assert any((a != b).any() for a, b in zip(vectors(fast, many(3)), before, strict=True))
    assert model_digest(fast.bundle) == model_digest(elmo.bundle)
    for a, b in zip(vectors(elmo, many(3)), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_fast_stateful_embedder_keeps_its_state_when_pickled(monkeypatch, small):
    simulated_bf16.simulate_bf16_units(monkeypatch)
    elmo = elmore.load(small, device="cpu", precision="fast")
    again = pickle.loads(pickle.dumps(elmo))
    assert again.is_fast
    for a, b in zip(vectors(again, many(5)), vectors(elmo, many(5)), strict=True):
        np.testing.assert_array_equal(a, b)
    carried = Embedder(elmo.bundle, device="cpu", precision="fast", stateful=True)
    first, second = (vectors(carried, [["the", "bank"]])[0] for _ in range(2))
    assert np.abs(first - second).max() > 1e-4


def test_an_unknown_precision_is_refused(small):
    with pytest.raises(ConfigError, match="precision must be 'exact' or 'fast', found 'half'"):
        elmore.load(small, precision="half")


def test_a_fast_model_is_mixed_frozen_and_not_fine_tuned(monkeypatch, small):
    simulated_bf16.simulate_bf16_units(monkeypatch)
    elmo = elmore.load(small, device="cpu", precision="fast")
    mixed = elmore.Elmo(elmo, dropout=0.0, weights=[0.0] * elmo.num_layers)([["the", "bank"]])
    expected = elmo.embed([["the", "bank"]])[0].vectors
    np.testing.assert_allclose(mixed.mixes[0][0].detach(), expected, atol=1e-6)
    with pytest.raises(ConfigError, match="a fast embedder cannot learn; load it with precision="):
        elmore.Elmo(elmo, freeze=False)


def test_cached_layers_belong_to_one_precision(monkeypatch, small):
    def key(precision: str) -> str:
        elmo = elmore.load(small, device="cpu", precision=precision)
        return layer_cache.cache_key(elmo, [["a"]])

    with monkeypatch.context() as patch:
        simulated_bf16.simulate_bf16_units(patch)
        fast = key("fast")
    simulated_bf16.disable_fast_units(monkeypatch)
    assert key("exact") == key("fast") != fast


def test_a_job_is_not_resumed_in_another_precision(monkeypatch, small, tmp_path):
    simulated_bf16.simulate_bf16_units(monkeypatch)
    exact, fast = (elmore.load(small, device="cpu", precision=p) for p in ("exact", "fast"))
    journal.EmbedJournal(tmp_path / "parts", jobs.describe_job(fast, **JOB)).close()
    journal.EmbedJournal(tmp_path / "parts", jobs.describe_job(fast, **JOB)).close()
    with pytest.raises(DataError, match="precision was 'fast' and is 'exact'"):
        journal.EmbedJournal(tmp_path / "parts", jobs.describe_job(exact, **JOB))
    assert jobs.describe_job(exact, precision="fast", **JOB) == jobs.describe_job(fast, **JOB)


def test_the_command_takes_a_precision(monkeypatch, small, tmp_path):
    simulated_bf16.simulate_bf16_units(monkeypatch)
    (tmp_path / "text.txt").write_text("The bank closed .\n")

    def found(*options: str) -> np.ndarray:
        out = tmp_path / "out.npz"
        shared = ("embed", str(tmp_path / "text.txt"), "-o", str(out), "--overwrite")
        result = run_elmore(*shared, "--model", str(small), "--device", "cpu", *options)
        assert result.code == 0, result.err
        with np.load(out) as file:
            return file["0"]

    exact, fast = found(), found("--precision", "fast")
    np.testing.assert_array_equal(found("--precision", "exact"), exact)
    assert 0 < np.abs(fast - exact).max() < 0.02
    refused = run_elmore("embed", "--precision", "half")
    assert refused.code == 2
