"""A whitening is learned from a sample, and gives a word the same bits in any company."""

import numpy as np
import pytest

import elmore
from elmore.embed import whitening
from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError
from elmore.model.native import quantize_rows
from elmore.serve.engine import EmbedWork, Engine
from elmore.weights.whitening import Whitening
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm
from tests.support.toy_whitening import make_whitening

WORDS = ["the", "bank", "of", "naïve", "x" * 60, "日本", "a", "reconstruction", "river", "."]


def texts(count: int, longest: int = 12) -> list[list[str]]:
    rng = np.random.default_rng(count)
    return [list(rng.choice(WORDS, rng.integers(0, longest))) for _ in range(count)]


@pytest.fixture(scope="module")
def elmo(tmp_path_factory) -> Embedder:
    settings = bilm_options()
    weights = bilm_weights(settings, np.random.default_rng(0))
    return elmore.load(*write_bilm(tmp_path_factory.mktemp("model"), settings, weights))


@pytest.fixture(params=["native", "eager"])
def backend(request, elmo) -> Embedder:
    own = Embedder(elmo.bundle, device="cpu")
    if request.param == "eager":
        own.bundle.model.use_backend("eager")
    return own


def test_whitened_vectors_are_what_the_equation_says(backend):
    made = make_whitening(backend)
    each = texts(20)
    joined = backend.embed(each, layers=["top", "cloze"])
    for text, layers in zip(backend.embed(each, layers=made), joined, strict=True):
        centred = np.concatenate(list(layers.vectors), axis=1) - made.mean
        expected = centred @ made.projection.dense().T
        np.testing.assert_allclose(text.vectors, expected, rtol=0, atol=1e-4)


def test_other_texts_change_no_bit(backend):
    made, each = make_whitening(backend), texts(200)
    together = [text.vectors.tobytes() for text in backend.embed(each, layers=made)]
    alone = [backend.embed([text], layers=made)[0].vectors.tobytes() for text in each[:40]]
    assert together[:40] == alone


def test_a_server_and_a_stateful_embedder_whiten_too(elmo):
    made, each = make_whitening(elmo), texts(5)
    expected = [text.vectors for text in elmo.embed(each, layers=made)]
    engine, result = Engine(elmo), {}
    engine.add({1: EmbedWork(each, made)})
    while not result:
        result = engine.step()
    stateful = Embedder(elmo.bundle, device="cpu", stateful=True).embed(each, layers=made)
    for one, two, three in zip(result[1], stateful, expected, strict=True):
        np.testing.assert_allclose(one, three, rtol=0, atol=1e-4)
        np.testing.assert_allclose(two.vectors, three, rtol=0, atol=1e-4)


def test_a_learned_whitening_removes_mean_and_correlation_from_its_sample(elmo):
    sample = texts(300)
    made = whitening.learn(elmo, sample, power=0.5, origin={"learned from": "ten words"})
    assert (made.layers, made.width) == (("2", "cloze"), elmo.width)
    vectors = np.concatenate([text.vectors for text in elmo.embed(sample, layers=made)])
    np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=0.05)
    covariance = vectors.T @ vectors / len(vectors)
    np.testing.assert_allclose(covariance, np.eye(elmo.width), atol=0.1)


@pytest.mark.parametrize(
    ("layers", "error"), [(["top"], DataError), ([], DataError), (["7"], ConfigError)]
)
def test_layers_that_cannot_be_joined_are_refused(elmo, layers, error):
    with pytest.raises(error, match="layers"):
        whitening.learn(elmo, texts(3), layers=layers)


def test_a_whitening_of_another_model_is_refused(backend):
    width, names = 2 * backend.width, ("2", "cloze")
    other = Whitening(
        layers=names,
        mean=np.zeros(2 * width, np.float32),
        projection=quantize_rows(np.ones((width, 2 * width), np.float32)),
    )
    found = f"layers of {width} numbers, found {backend.width}"
    for layers in (other, ["top", other]):
        with pytest.raises(ConfigError, match=found):
            backend.embed([["a"]], layers=layers)


def test_a_sample_that_is_too_small_is_refused(elmo):
    with pytest.raises(DataError, match=r"needs \d+ tokens or more, found 4; pass more text"):
        whitening.learn(elmo, [["a", "b"], ["c", "d"]])
