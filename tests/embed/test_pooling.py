import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from elmore.embed.pooling import cosine, learn, pool
from elmore.errors import ConfigError, DataError
from elmore.weights.pooling import TextPooling

NUMBERS = st.floats(-100, 100, width=32)
WORDS = st.sampled_from(["the", "a", "bank", "river"])


def plain(width, **changes):
    nothing = {"frequencies": {}, "mean": np.zeros(width), "components": np.zeros((0, width))}
    return TextPooling(**(nothing | changes))


def random_texts(rng, num_texts=30, width=5):
    """Pairs of tokens and vectors; the third text is empty."""
    lengths = [0 if i == 2 else rng.integers(1, 8) for i in range(num_texts)]
    return [
        (list(rng.choice(["the", "a", "bank", "river"], n)), rng.normal(2, 1, (n, width)))
        for n in lengths
    ]


@st.composite
def texts(draw, width=3):
    tokens = draw(st.lists(WORDS, max_size=5))
    return tokens, draw(arrays(np.float32, (len(tokens), width), elements=NUMBERS))


def test_mean_and_max_match_their_definitions():
    vectors = np.array([[1, -5], [3, 1], [2, 1]], np.float32)
    assert_array_equal(pool(["a", "b", "c"], vectors, "mean"), [2, -1])
    assert_array_equal(pool(["a", "b", "c"], vectors, "max"), [3, 1])


def test_a_frequent_word_weighs_less_and_an_unknown_one_weighs_one():
    how = plain(2, frequencies={"the": 0.003}, smoothing=0.001)  # weighs 1/4
    vectors = np.array([[10, 0], [0, 10]], np.float32)
    assert_allclose(pool(["the", "bank"], vectors, how), [2, 8])


def test_the_mean_goes_first_and_then_the_components():
    how = plain(3, mean=np.array([1.0, 1, 1]), components=np.array([[0.6, 0.8, 0]]))
    # centred (1, 2, 3); 0.6 + 1.6 = 2.2 along the component
    assert_allclose(
        pool(["a"], np.array([[2, 3, 4]], np.float32), how), [-0.32, 0.24, 3], rtol=1e-6
    )


@pytest.mark.parametrize("how", ["mean", "max", plain(4, mean=np.ones(4))])
def test_an_empty_text_is_the_zero_vector_corrected_or_not(how):
    assert_array_equal(pool([], np.zeros((0, 4), np.float32), how), np.zeros(4))


@pytest.mark.parametrize("how", ["mean", "max", plain(3)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_text_vector_is_float32(how, dtype):
    assert pool(["a"], np.ones((1, 3), dtype), how).dtype == np.float32


def test_learning_counts_words_and_centres_the_weighted_averages(rng):
    sample = random_texts(rng)
    learned = learn(sample, remove=2, smoothing=0.1)
    tokens = [word for words, _ in sample for word in words]
    shares = {word: tokens.count(word) / len(tokens) for word in set(tokens)}
    assert learned.frequencies == pytest.approx(shares)
    averages = []
    for words, vectors in sample:
        if words:
            weights = [0.1 / (0.1 + shares[word]) for word in words]
            averages.append(np.average(vectors, axis=0, weights=weights))
    assert_allclose(learned.mean, np.mean(averages, axis=0))
    directions = np.linalg.svd(np.array(averages) - learned.mean)[2][:2]
    assert_allclose(np.abs(learned.components @ directions.T), np.eye(2), atol=1e-9)


def test_without_weights_every_word_counts_the_same(rng):
    sample = random_texts(rng)
    learned = learn(sample, weighted=False)
    assert learned.frequencies == {}
    assert_allclose(learned.mean, np.mean([v.mean(axis=0) for w, v in sample if w], axis=0))


def test_remove_0_takes_away_only_the_mean(rng):
    assert learn(random_texts(rng), remove=0).components.shape == (0, 5)


def test_no_more_directions_are_removed_than_the_sample_varies_in():
    vectors = np.array([[0.0, 7, 0], [2, 7, 0], [5, 7, 0]])
    learned = learn([(["a"], v[None]) for v in vectors], remove=3)
    assert_allclose(np.abs(learned.components), [[1, 0, 0]], atol=1e-12)


def test_learning_from_an_iterator_equals_learning_from_its_list(rng):
    sample = random_texts(rng, num_texts=600)  # more than one block
    once, again = learn(iter(sample), remove=2), learn(sample, remove=2)
    assert once.frequencies == again.frequencies
    assert_array_equal(once.mean, again.mean)
    assert_array_equal(once.components, again.components)


@given(st.lists(texts(), min_size=1, max_size=4), st.lists(texts(), min_size=2, max_size=6))
def test_the_sample_has_mean_zero_and_no_text_has_anything_along_the_components(new, sample):
    sample = [text for text in sample if text[0]]
    assume(len(sample) > 1)
    learned = learn(sample, remove=1)
    pooled = np.stack([pool(*text, learned) for text in sample])
    assert_allclose(pooled.mean(axis=0), 0, atol=1e-3)
    assert_allclose(pooled @ learned.components.T, 0, atol=1e-3)
    for text in new:
        assert_allclose(learned.components @ pool(*text, learned), 0, atol=1e-3)


@given(st.lists(texts(), max_size=4), texts(), st.lists(texts(), max_size=4))
def test_the_vector_of_a_text_does_not_depend_on_other_texts(before, text, after):
    learned = learn([(["the", "bank"], np.eye(2, 3)), (["the"], np.ones((1, 3)))], remove=1)
    for how in ("mean", "max", learned):
        together = [pool(*each, how) for each in (*before, text, *after)]
        assert_array_equal(together[len(before)], pool(*text, how))


def test_the_correction_separates_related_from_unrelated_texts(rng):
    """All tokens share one strong direction of varying strength, as ELMo's do."""
    common = rng.normal(size=50)

    def text(topic):
        strength = rng.uniform(5, 15)
        return ["w"] * 10, topic + strength * common + rng.normal(size=(10, 50))

    learned = learn([text(rng.normal(size=50)) for _ in range(500)], remove=1)
    topics = rng.normal(size=(40, 50))
    first, second = [text(t) for t in topics], [text(t) for t in topics]

    def related_and_unrelated(how):
        sides = [np.stack([pool(*each, how) for each in side]) for side in (first, second)]
        similarity = cosine(*sides)
        same = np.eye(len(topics), dtype=bool)
        return similarity[same], similarity[~same]

    related, unrelated = related_and_unrelated("mean")
    assert unrelated.mean() > 0.95
    related, unrelated = related_and_unrelated(learned)
    assert abs(unrelated.mean()) < 0.05
    assert related.mean() > 0.85
    assert related.min() > unrelated.max()


def test_a_saved_model_is_loaded_unchanged(rng, tmp_path):
    learned = learn([*random_texts(rng), (["naïve\ud800"], np.ones((1, 5)))], remove=2)
    path = tmp_path / "new" / "pooling.of.mine"
    learned.save(path)
    learned.save(str(path))  # over itself
    loaded = TextPooling.load(str(path))
    assert loaded.frequencies == learned.frequencies
    assert loaded.smoothing == learned.smoothing
    assert_array_equal(loaded.mean, learned.mean)
    assert_array_equal(loaded.components, learned.components)
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_a_failed_save_leaves_existing_files_intact(rng, tmp_path, monkeypatch):
    path = tmp_path / "pooling.npz"
    plain(2).save(path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError) as failed:
        plain(3).save(path)
    assert str(failed.value) == (
        f"{path}: cannot be written (No space left on device); free some space, or pass another "
        "name"
    )
    assert len(TextPooling.load(path).mean) == 2
    assert list(tmp_path.iterdir()) == [path]


def test_a_pooling_can_be_pickled(rng):
    learned = learn(random_texts(rng))
    tokens, vectors = random_texts(rng)[0]
    again = pickle.loads(pickle.dumps(learned))
    assert_array_equal(pool(tokens, vectors, again), pool(tokens, vectors, learned))


def test_files_that_are_something_else_are_refused(tmp_path):
    path = tmp_path / "pooling.npz"
    whole = tmp_path / "whole.npz"
    plain(2).save(whole)
    contents = whole.read_bytes()
    result = [b"", b"hello", pickle.dumps({}), contents[:-30], contents[:100], contents[30:]]
    for content in result:
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"pooling.npz: not a readable pooling \("):
            TextPooling.load(path)
    with pytest.raises(DataError, match="No such file"):
        TextPooling.load(tmp_path / "absent.npz")
    with pytest.raises(DataError, match="not a readable pooling"):
        TextPooling.load(tmp_path)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (b'{"format": 4, "smoothing": 1, "frequencies": {}}', "format 4 is newer"),
        (b'{"format": 1, "smoothing": 1, "frequencies": {"a": NaN}}', "expected a finite number"),
        (b'{"format": 1, "smoothing": 1, "frequencies": []}', "not a readable"),
        (b'{"format": 1, "smoothing": 1, "frequencies": {}, "x": 1}', "not a readable"),
        (b"[]", "not a readable"),
    ],
)
def test_words_that_are_no_pooling_are_refused(tmp_path, words, match):
    path = tmp_path / "pooling.npz"
    text = np.frombuffer(words, dtype=np.uint8)
    np.savez(path, words=text, mean=np.zeros(2), components=np.zeros((0, 2)))
    with pytest.raises(DataError, match=match):
        TextPooling.load(path)


def test_a_damaged_file_is_refused_or_reads_the_same(rng, tmp_path):
    path = tmp_path / "pooling.npz"
    learned = learn(random_texts(rng))
    learned.save(path)
    whole = path.read_bytes()
    for index in rng.integers(0, len(whole), 200):
        damaged = bytearray(whole)
        damaged[index] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            loaded = TextPooling.load(path)
        except DataError:
            continue
        assert_array_equal(loaded.mean, learned.mean)
        assert loaded.frequencies == learned.frequencies


@pytest.mark.parametrize("sample", [[], [(["a"], np.ones((1, 2)))], [([], np.ones((0, 2)))] * 5])
def test_too_few_texts_are_refused(sample):
    with pytest.raises(DataError, match=r"at least 2 texts with words, found [01]"):
        learn(sample)


def test_vectors_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match="inf or nan"):
        learn([(["a"], np.ones((1, 2))), (["b"], np.array([[np.nan, 0]]))])


@pytest.mark.parametrize("options", [{"remove": -1}, {"smoothing": 0}, {"smoothing": np.nan}])
def test_impossible_options_are_refused(rng, options):
    with pytest.raises(ConfigError, match="expected remove >= 0 and smoothing > 0, found"):
        learn(random_texts(rng), **options)


@pytest.mark.parametrize(
    "changes",
    [
        {"smoothing": 0.0},
        {"frequencies": {"a": 2.0}},
        {"mean": np.zeros((1, 2))},
        {"components": np.zeros((1, 3))},
        {"components": np.zeros(2)},
        {"components": np.zeros(())},
        {"mean": np.array([np.inf, 0])},
    ],
)
def test_an_invalid_pooling_is_refused(changes):
    with pytest.raises(DataError):
        replace(plain(2), **changes)


@pytest.mark.parametrize("how", ["first", None, 3])
def test_an_unknown_way_to_pool_is_named(how):
    with pytest.raises(ConfigError, match=f"pool={how!r}: expected 'mean', 'max' or a TextPooling"):
        pool(["a"], np.ones((1, 2)), how)


@pytest.mark.parametrize("how", ["mean", "max", plain(2)])
@pytest.mark.parametrize("shape", [(2, 2), (3, 1, 2), (2,)])
def test_vectors_that_do_not_go_with_the_tokens_are_refused(how, shape):
    with pytest.raises(DataError, match=r"1 tokens need vectors of shape \(1, width\)"):
        pool(["a"], np.ones(shape), how)


def test_a_pooling_of_another_model_is_refused():
    with pytest.raises(DataError, match="learned for width 3, the vectors have width 2"):
        pool(["a"], np.ones((1, 2)), plain(3))


def test_cosine_by_hand():
    a = np.array([[3, 4], [0, 0], [1e-30, 0]], np.float32)
    b = np.array([[6, 8], [-3, -4], [4, -3]], np.float32)
    result = cosine(a, b)
    assert_allclose(result, [[1, -1, 0], [0, 0, 0], [0.6, -0.6, 0.8]], atol=1e-7)
    assert result.dtype == np.float32
    assert cosine(a[:0], b).shape == (0, 3)


@given(arrays(np.float32, (4, 3), elements=NUMBERS))
def test_cosine_stays_between_minus_one_and_one_and_is_symmetric(vectors):
    result = cosine(vectors, vectors)
    assert (np.abs(result) <= 1).all()
    assert_allclose(result, result.T, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 4), (3,)])
def test_cosine_needs_one_width(shape):
    with pytest.raises(DataError, match="of one width"):
        cosine(np.ones((2, 3)), np.ones(shape))
