"""A whitening is learned from a sample, and gives a word the same bits in any company."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

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


def test_fast_vectors_are_near_the_exact_ones_and_keep_their_bits_in_any_batch(elmo):
    made, each = make_whitening(elmo), texts(60)
    fast = Embedder(elmo.bundle, device="cpu", precision="fast")
    if not fast.is_fast:
        pytest.skip("this CPU has no int8 dot products")
    together = [text.vectors for text in fast.embed(each, layers=made)]
    alone = [fast.embed([text], layers=made)[0].vectors for text in each]
    assert [one.tobytes() for one in together] == [one.tobytes() for one in alone]
    exact = np.concatenate([text.vectors for text in elmo.embed(each, layers=made)])
    difference = np.abs(np.concatenate(together) - exact).max()
    assert 0 < difference < 0.05 * np.abs(exact).max()


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


def blocks(rng: np.random.Generator, num_words: int = 200, width: int = 6, num_layers: int = 2):
    """Uses of words in blocks: a mean for each word, and a variation with correlations."""
    means = 5 * rng.normal(size=(num_words, num_layers * width))
    spread = rng.normal(size=(num_layers * width, num_layers * width))
    numbers = rng.integers(0, num_words, 3000)
    rows = means[numbers] + rng.normal(size=(3000, num_layers * width)) @ spread
    tokens = [f"Word{number}" if rng.random() < 0.5 else f"word{number}" for number in numbers]
    return [
        (tokens[begin : begin + 7], rows[begin : begin + 7].astype(np.float32))
        for begin in range(0, 3000, 7)
    ]


def within_words(tokens, rows, max_uses: int):
    """The covariance of the first uses of each word around its mean, by its definition."""
    uses: dict[str, list[np.ndarray]] = {}
    for token, row in zip(tokens, rows, strict=True):
        of_word = uses.setdefault(token.lower(), [])
        if len(of_word) < max_uses:
            of_word.append(row.astype(np.float64))
    deviations = np.concatenate([np.array(each) - np.mean(each, axis=0) for each in uses.values()])
    return deviations.T @ deviations / (len(deviations) - len(uses))


@pytest.fixture
def sample(rng):
    made = blocks(rng)
    tokens = [token for block, _ in made for token in block]
    return made, tokens, np.concatenate([rows for _, rows in made])


@pytest.mark.parametrize("max_uses", [3, 20])
def test_variances_are_measured_around_the_mean_of_each_word(sample, monkeypatch, max_uses):
    monkeypatch.setattr(whitening, "MAX_USES", max_uses)
    made, tokens, rows = sample
    found = whitening.measure(made)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(found.within, within_words(tokens, rows, max_uses), atol=1e-3)


def test_more_words_than_fit_into_memory_are_not_counted(sample, monkeypatch):
    monkeypatch.setattr(whitening, "MAX_WORDS", 30)
    made, tokens, rows = sample
    first = set(list(dict.fromkeys(token.lower() for token in tokens))[:30])
    kept = [number for number, token in enumerate(tokens) if token.lower() in first]
    found = whitening.measure(made)
    expected = within_words([tokens[number] for number in kept], rows[kept], whitening.MAX_USES)
    np.testing.assert_allclose(found.within, expected, atol=1e-3)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), atol=1e-5)


def test_full_whitening_evens_out_the_uses_of_a_word_in_one_layer(rng):
    made = blocks(rng, num_layers=1)
    statistics = whitening.measure(made)
    projected = whitening.projection(statistics, 1, 0.5)
    covariance = projected @ statistics.within @ projected.T
    np.testing.assert_allclose(covariance, covariance[0, 0] * np.eye(6), atol=1e-5)


def test_the_projection_keeps_the_directions_in_which_uses_vary_most(rng):
    statistics = whitening.measure(blocks(rng))
    made = whitening.projection(statistics, 2, 0.375)
    covariance = made @ statistics.within @ made.T
    variances = np.diag(covariance)
    np.testing.assert_allclose(covariance, np.diag(variances), atol=1e-5 * variances.max())
    assert (np.diff(variances) <= 0).all()


def test_a_scale_of_a_layer_does_not_matter(rng):
    made = blocks(rng)
    scaled = [(tokens, rows * np.repeat([1, 1000], 6)) for tokens, rows in made]
    first, second = (
        whitening.projection(whitening.measure(each), 2, 0.375) for each in (made, scaled)
    )
    rows = np.concatenate([rows for _, rows in made])
    one, two = rows @ first.T, rows * np.repeat([1, 1000], 6) @ second.T
    np.testing.assert_allclose(np.abs(one), np.abs(two), rtol=1e-2, atol=1e-3 * np.abs(one).max())


def test_a_learned_whitening_is_that_of_the_joined_layers_of_its_sample(elmo):
    rng = np.random.default_rng(0)
    sample = [[f"w{number}" for number in rng.integers(0, 60, 10)] for _ in range(200)]
    made = whitening.learn(elmo, sample, power=0.25, origin={"learned from": "sixty words"})
    assert (made.layers, made.width) == (("2", "cloze"), elmo.width)
    layers = np.stack([text.vectors for text in elmo.embed(sample, layers="all")])[:, 2]
    cloze = np.stack([text.vectors for text in elmo.embed(sample, layers="cloze")])
    joined = np.concatenate([layers, cloze], axis=2)
    np.testing.assert_allclose(made.mean, joined.mean(axis=(0, 1)), atol=1e-5)
    expected = whitening.projection(whitening.measure(zip(sample, joined, strict=True)), 2, 0.25)
    cosines = np.sum(expected * made.projection.dense(), axis=1)
    cosines /= np.linalg.norm(expected, axis=1) * np.linalg.norm(made.projection.dense(), axis=1)
    assert (cosines > 0.98).all()  # 4 bits


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 9)),
        elements=st.floats(-(2.0**100), 2.0**100, width=32),
    )
)
def test_four_bits_lose_little_of_a_row(weight):
    numbers, scales = whitening.quantize(weight)
    assert np.abs(numbers.astype(int)).max() <= 7
    error = np.abs(weight - numbers * scales[:, None].astype(np.float64)).max(axis=1)
    # A range that is too narrow never has less error than that of the largest number.
    assert (error <= np.abs(weight).max(axis=1) / 2 + 1e-30).all()


def test_layers_without_variation_are_refused(elmo):
    rng = np.random.default_rng(0)
    words = [[f"w{number}" for number in rng.permutation(30)] for _ in range(25)]
    with pytest.raises(DataError, match="layer 2 of 2: all uses of a word have the same vector"):
        whitening.learn(elmo, words, layers=["2", "0"])


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


@pytest.mark.parametrize("sample", [[], [[]], [["a", "b"], ["c", "B"]]])
def test_a_sample_that_is_too_small_is_refused(elmo, sample):
    with pytest.raises(DataError, match=r"uses of words that were used before, found [01]; pass"):
        whitening.learn(elmo, sample)
