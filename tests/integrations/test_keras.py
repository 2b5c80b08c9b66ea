"""`ElmoMix` in Keras models, in an environment with the real Keras 3 on torch."""

import os

import numpy as np
import pytest

import elmore
from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="Keras is not installed: make test-integrations")
from elmore.integrations.keras import ElmoBatches, ElmoMix, embed  # noqa: E402
from tests.support import doc_blocks  # noqa: E402
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm  # noqa: E402

TEXTS = [
    ["I", "left", "it", "."],
    [],
    ["naïve", "日本語", "x" * 70],
    ["So", "it", "goes", "on", "."],
]


@pytest.fixture
def elmo(tmp_path, rng) -> Embedder:
    options = bilm_options()
    return elmore.load(
        *write_bilm(tmp_path / "model", options, bilm_weights(options, rng)), device="cpu"
    )


def classifier(elmo: Embedder) -> "keras.Model":
    layers = keras.Input((None, elmo.num_layers, elmo.width))
    mixed = ElmoMix(name="mix")(layers)
    read = keras.layers.Bidirectional(keras.layers.LSTM(8))(mixed)
    model = keras.Model(layers, keras.layers.Dense(1, activation="sigmoid")(read))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model


def test_layers_are_the_embedders_and_zero_where_a_text_is_over(elmo):
    layers = embed(elmo, TEXTS)
    assert layers.shape == (4, 5, 3, 12)
    for row, result in zip(layers, elmo.embed(TEXTS, layers="all"), strict=True):
        size = len(result.tokens)
        np.testing.assert_allclose(row[:size].swapaxes(0, 1), result.vectors, atol=1e-5)
        assert not row[size:].any()
    np.testing.assert_allclose(embed(elmo, TEXTS, length=2), layers[:, :2], atol=1e-5)
    assert embed(elmo, TEXTS, length=9).shape == (4, 9, 3, 12)
    assert embed(elmo, []).shape == (0, 0, 3, 12)
    assert embed(elmo, TEXTS, dtype="float16").dtype == np.float16


def test_an_untrained_mix_is_the_average_with_padding_masked(elmo):
    layers = embed(elmo, TEXTS)
    mix = ElmoMix()
    mixed = keras.ops.convert_to_numpy(mix(layers))
    for row, result in zip(mixed, elmo.embed(TEXTS), strict=True):
        np.testing.assert_allclose(row[: len(result.tokens)], result.vectors, atol=1e-5)
    mask = keras.ops.convert_to_numpy(mix.compute_mask(layers))
    assert mask.sum(axis=1).tolist() == [len(text) for text in TEXTS]
    assert mix.normalized_weights() == pytest.approx([1 / 3] * 3)


def test_a_weighted_mix_is_that_of_the_paper(elmo):
    layers = embed(elmo, TEXTS)
    mix = ElmoMix()
    mix.build(layers.shape)
    mix.set_weights([np.array([1.0, 0.0, -1.0]), np.array(2.0)])
    weights = np.exp([1.0, 0.0, -1.0]) / np.exp([1.0, 0.0, -1.0]).sum()
    result = keras.ops.convert_to_numpy(mix(layers))
    np.testing.assert_allclose(result, 2 * np.tensordot(layers, weights, ([2], [0])), atol=1e-5)
    assert mix.normalized_weights() == pytest.approx(weights.tolist(), abs=1e-6)


def test_padding_does_not_reach_the_model(elmo):
    model = classifier(elmo)
    short, long = (model.predict(embed(elmo, TEXTS, length=n), verbose=0) for n in (5, 11))
    np.testing.assert_allclose(short[[0, 2, 3]], long[[0, 2, 3]], atol=1e-5)


def test_the_mix_learns_with_the_task_and_is_saved(tmp_path):
    elmo = elmore.load(device="cpu")
    keras.utils.set_random_seed(0)
    praise = ["a wonderful film .", "I loved every minute of it .", "funny and moving ."]
    blame = ["a waste of time .", "dull and far too long .", "I hated it ."]
    texts, labels = [*praise, *blame], np.array([1, 1, 1, 0, 0, 0])
    model, layers = classifier(elmo), embed(elmo, texts)
    model.fit(layers, labels, epochs=20, verbose=0)
    assert model.evaluate(layers, labels, verbose=0)[1] == 1.0
    assert model.get_layer("mix").normalized_weights() != pytest.approx([1 / 3] * 3, abs=1e-4)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        again.predict(layers, verbose=0), model.predict(layers, verbose=0), atol=1e-6
    )


def test_batches_are_read_when_they_are_due(elmo):
    labels = [1, 0, 1, 0]
    batches = ElmoBatches(elmo, TEXTS, labels, batch_size=3)
    assert len(batches) == 2
    layers, gold = batches[1]
    assert (layers.shape, gold.tolist()) == ((1, 5, 3, 12), [0])
    model = classifier(elmo)
    model.fit(batches, epochs=1, verbose=0)
    assert model.predict(ElmoBatches(elmo, TEXTS, batch_size=3), verbose=0).shape == (4, 1)


def test_mismatched_inputs_are_reported_in_one_sentence(elmo):
    with pytest.raises(DataError, match="4 texts have 1 labels"):
        ElmoBatches(elmo, TEXTS, [1])
    with pytest.raises(ConfigError, match=r"expected layers \(texts, tokens, layers, width\)"):
        ElmoMix()(np.zeros((2, 3, 12), np.float32))


def test_a_length_or_a_batch_size_below_one_is_refused(elmo):
    with pytest.raises(ConfigError, match="batch_size must be at least 1, found 0"):
        ElmoBatches(elmo, TEXTS, batch_size=0)
    with pytest.raises(ConfigError, match="length must be at least 1, or None, found -1"):
        ElmoBatches(elmo, TEXTS, length=-1)
    with pytest.raises(ConfigError, match="length must be at least 1, or None, found 0"):
        embed(elmo, TEXTS, length=0)


@pytest.mark.parametrize("block", doc_blocks.integration_blocks("keras.md"))
def test_the_page_runs(block):
    doc_blocks.run_block(block)
