"""The numpy reference itself: against published vectors, and against the definition."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.support.fake_checkpoints import (
    allennlp_state_dict,
    bilm_options,
    bilm_weights,
    many_langs,
    read_bilm,
    read_many_langs,
    write_bilm,
)
from tests.support.numpy_elmo import (
    NumpyElmo,
    NumpyManyLangs,
    byte_ids,
    layer_norm_allennlp,
    layer_norm_bilm,
    layer_norm_token,
    padded,
    scalar_mix,
    sigmoid,
)

FIXTURES = os.environ.get("ELMORE_FIXTURES")
needs_fixtures = pytest.mark.skipif(
    not FIXTURES, reason="ELMORE_FIXTURES names no folder with published models and vectors"
)
TOLERANCE = 2e-6
BATCH = [["The", "cat", "sat", "."], ["naïve"], [], ["a", "日本", "x" * 70]]


def fixture(*parts: str) -> Path:
    return Path(FIXTURES, *parts)


def stored_top_layers(folder: str, row: int) -> list[np.ndarray]:
    """The ten sentences of one row: (2 directions, T, D) in the file, (T, 2D) here."""
    with h5py.File(fixture(folder, f"lm_embeddings_{row}.hdf5"), "r") as file:
        return [np.concatenate(list(file[str(number)][()]), axis=-1) for number in range(10)]


def tiny(dtype=np.float64, seed: int = 0, scale: float = 1.0, **changes) -> NumpyElmo:
    options = bilm_options(**changes)
    weights = bilm_weights(options, np.random.default_rng(seed), scale)
    return NumpyElmo(options, weights, dtype)


# Published vectors


@needs_fixtures
@pytest.mark.parametrize(
    ("folder", "sentences_name"),
    [("allennlp", "sentences.json"), ("bilm-tf/model", "lm_embeddings_sentences.json")],
)
def test_ten_batches_give_the_stored_top_layers(folder, sentences_name):
    options, weights = read_bilm(
        fixture(folder, "options.json"), fixture(folder, "lm_weights.hdf5")
    )
    elmo = NumpyElmo(options, weights)
    rows = json.loads(fixture(folder, sentences_name).read_text(encoding="utf-8"))
    assert [len(row) for row in rows] == [10, 10, 10]
    stored = [stored_top_layers(folder, row) for row in range(3)]
    state, worst = None, 0.0
    for number in range(10):
        result, state = elmo.layers([row[number].split() for row in rows], state)
        for row, layers in enumerate(result):
            assert layers[2].shape == stored[row][number].shape
            worst = max(worst, np.abs(layers[2] - stored[row][number]).max())
    assert worst < TOLERANCE


@needs_fixtures
def test_token_vectors_are_those_of_the_allennlp_cache():
    options, weights = read_bilm(
        fixture("allennlp", "options.json"), fixture("allennlp", "lm_weights.hdf5")
    )
    words = fixture("allennlp", "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    with h5py.File(fixture("allennlp", "elmo_token_embeddings.hdf5"), "r") as file:
        stored = file["embedding"][()]
    result = NumpyElmo(options, weights).token_vectors(words)
    assert result.shape == stored.shape
    assert np.abs(result - stored).max() < TOLERANCE


@needs_fixtures
def test_many_langs_gives_the_stored_layers():
    elmo = NumpyManyLangs(**read_many_langs(fixture("many-langs")))
    sentences = json.loads(fixture("many-langs", "sentences.json").read_text(encoding="utf-8"))
    worst = 0.0
    with np.load(fixture("many-langs", "expected.npz")) as expected:
        assert sorted(expected, key=int) == [str(number) for number in range(len(sentences))]
        for number, layers in enumerate(elmo.layers(sentences)):
            assert layers.shape == expected[str(number)].shape
            worst = max(worst, np.abs(layers - expected[str(number)]).max())
    assert worst < TOLERANCE


# Characters


@pytest.mark.parametrize(
    ("word", "ids"),
    [
        ("th", [258, 116, 104, 259, 260]),
        ("thhhhh", [258, 116, 104, 104, 259]),
        ("\u0100t", [258, 196, 128, 116, 259]),
        ("", [258, 259, 260, 260, 260]),
        ("<S>", [258, 256, 259, 260, 260]),
        ("</S>", [258, 257, 259, 260, 260]),
        ("<s>", [258, 60, 115, 62, 259]),
        ("\ud800t", [258, 116, 259, 260, 260]),
        ("aa日", [258, 97, 97, 230, 259]),
    ],
)
def test_a_word_is_its_bytes_between_marks(word, ids):
    assert byte_ids(word, 5) == ids


@pytest.mark.parametrize(
    ("word", "shifted"), [("The", [259, 85, 105, 102, 260, 261]), (".", [259, 47, 260, 261])]
)
def test_shifted_ids_are_those_fed_at_inference(word, shifted):
    ids = [raw + 1 for raw in byte_ids(word)]
    assert len(ids) == 50
    assert ids == shifted + [261] * (50 - len(shifted))


@pytest.mark.parametrize("length", [48, 49, 100])
def test_a_long_word_fills_the_width(length):
    assert byte_ids("x" * length) == [258, *[120] * 48, 259]


# Generated models


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_number_stays_in_its_dtype(dtype, tmp_path):
    layers, state = tiny(dtype).layers(BATCH)
    assert {array.dtype for array in layers} == {np.dtype(dtype)}
    assert {array.dtype for pair in state.values() for array in pair} == {np.dtype(dtype)}
    pieces = many_langs(tmp_path, np.random.default_rng(0))
    assert {array.dtype for array in NumpyManyLangs(**pieces, dtype=dtype).layers(BATCH)} == {
        np.dtype(dtype)
    }
    stack, mask = padded(layers)
    for norm in (layer_norm_allennlp, layer_norm_bilm):
        assert norm(stack, mask).dtype == dtype
    assert layer_norm_token(stack).dtype == dtype
    assert scalar_mix(stack, [0.1, 0.2, 0.3], 2.0).dtype == dtype


def test_float32_is_near_float64():
    for single, double in zip(
        tiny(np.float32).layers(BATCH)[0], tiny().layers(BATCH)[0], strict=True
    ):
        assert_allclose(single, double, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "tanh"},
        {"n_highway": 0},
        {"n_highway": 3},
        {"n_layers": 1},
        {"n_layers": 3},
        {"use_skip_connections": False},
        {"max_characters_per_token": 12},
        {"filters": [[1, 2], [3, 4]]},  # as many as projection_dim: no CNN_proj
        {"dim": 6},  # as projection_dim: no W_P_0
        {"cell_clip": None, "proj_clip": 0},
    ],
    ids=str,
)
def test_layers_have_their_shape_whatever_the_options(changes, tmp_path):
    options = bilm_options(**changes)
    weights = bilm_weights(options, np.random.default_rng(1))
    elmo = NumpyElmo(*read_bilm(*write_bilm(tmp_path / "model", options, weights)))
    num_layers = options["lstm"]["n_layers"] + 1
    layers, _ = elmo.layers(BATCH)
    assert [array.shape for array in layers] == [(num_layers, len(s), 12) for s in BATCH]
    with_boundaries, _ = elmo.layers_with_boundaries(BATCH)
    for inner, outer in zip(layers, with_boundaries, strict=True):
        assert np.array_equal(inner, outer[:, 1:-1])
        assert np.isfinite(outer).all()


def test_each_change_of_the_options_changes_the_vectors():
    base = tiny().layers(BATCH[:1])[0][0][-1]
    for changes in ({"activation": "tanh"}, {"use_skip_connections": False}):
        assert np.abs(tiny(**changes).layers(BATCH[:1])[0][0][-1] - base).max() > 1e-3


def test_an_unknown_word_of_a_vocabulary_model_is_unk():
    vocabulary = ["</S>", "<S>", "<UNK>", "cat"]
    options = bilm_options(char_cnn=None)
    weights = bilm_weights(options, np.random.default_rng(2), num_words=4)
    elmo = NumpyElmo(options, weights, vocabulary=vocabulary)
    assert np.array_equal(
        elmo.token_vectors(["cat", "dog", "<S>"]), weights["embedding"][[3, 2, 1]]
    )
    (known, unknown), _ = elmo.layers_with_boundaries([["cat"], ["dog"]])
    assert np.array_equal(known[0, 0], np.tile(weights["embedding"][1], 2))
    assert not np.array_equal(known[1], unknown[1])


def test_a_small_output_clip_binds():
    layers, _ = tiny(proj_clip=0.01).layers(BATCH)
    assert np.abs(layers[0][1]).max() == 0.01
    loose, _ = tiny(proj_clip=None).layers(BATCH)
    assert np.abs(loose[0][1]).max() > 0.01


def test_a_small_cell_clip_binds():
    _, state = tiny(cell_clip=0.01).layers(BATCH)
    assert all(np.abs(cells).max() == 0.01 for cells, _ in state.values())
    _, loose = tiny(cell_clip=0).layers(BATCH)
    assert all(np.abs(cells).max() > 0.01 for cells, _ in loose.values())


def test_large_weights_meet_the_usual_clips():
    sentence = [["The", "cat", "sat", "on", "the", "mat", "."] * 3]
    clipped = tiny(scale=8.0).layers(sentence)[0][0]
    free = tiny(scale=8.0, cell_clip=None, proj_clip=None).layers(sentence)[0][0]
    assert np.abs(clipped[1]).max() == 3
    assert np.abs(free[1]).max() > 3


def test_small_weights_never_meet_the_usual_clips():
    clipped = tiny().layers(BATCH)[0]
    free = tiny(cell_clip=None, proj_clip=None).layers(BATCH)[0]
    for one, other in zip(clipped, free, strict=True):
        assert np.array_equal(one, other)


def test_without_state_a_row_does_not_depend_on_the_others():
    elmo = tiny()
    together, _ = elmo.layers(BATCH)
    for sentence, layers in zip(BATCH, together, strict=True):
        assert np.array_equal(elmo.layers([sentence])[0][0], layers)


def test_a_state_belongs_to_its_row():
    elmo = tiny()
    _, after_two = elmo.layers([["a", "cat"], ["sat"]])
    before = {key: tuple(array.copy() for array in pair) for key, pair in after_two.items()}
    _, after_one = elmo.layers([["."]], after_two)
    for key, pair in after_one.items():
        for old, kept, new in zip(before[key], after_two[key], pair, strict=True):
            assert np.array_equal(old, kept), "the given state was changed"
            assert np.array_equal(old[1], new[1]), "row 1 took no part"
            assert not np.array_equal(old[0], new[0])
    grown, after_three = elmo.layers([["."], ["."], ["."]], after_two)
    assert {len(array) for pair in after_three.values() for array in pair} == {3}
    fresh, _ = elmo.layers([["."]])
    assert np.array_equal(grown[2], fresh[0])
    assert not np.array_equal(grown[1], fresh[0])


def test_directions_read_from_their_own_end():
    elmo = tiny()
    (short, long), _ = elmo.layers_with_boundaries([["a", "b"], ["a", "b", "c"]])
    forward, backward = slice(0, 6), slice(6, 12)
    assert np.array_equal(short[1:, :3, forward], long[1:, :3, forward])
    assert not np.array_equal(short[1:, :3, backward], long[1:, :3, backward])
    (left, right), _ = elmo.layers_with_boundaries([["a", "b"], ["c", "b"]])
    assert np.array_equal(left[1:, 2:, backward], right[1:, 2:, backward])
    assert not np.array_equal(left[1:, 2:, forward], right[1:, 2:, forward])


@pytest.mark.parametrize(("word_dim", "char_dim"), [(5, 4), (0, 4), (5, 0)])
def test_many_langs_is_read_as_it_was_written(word_dim, char_dim, tmp_path):
    pieces = many_langs(tmp_path, np.random.default_rng(3), word_dim=word_dim, char_dim=char_dim)
    read = read_many_langs(tmp_path)
    assert read["config"] == pieces["config"]
    assert (read["char_lexicon"], read["word_lexicon"]) == (
        pieces["char_lexicon"],
        pieces["word_lexicon"],
    )
    made, again = NumpyManyLangs(**pieces).layers(BATCH), NumpyManyLangs(**read).layers(BATCH)
    for sentence, one, other in zip(BATCH, made, again, strict=True):
        assert one.shape == (3, len(sentence), 12)
        assert np.array_equal(one, other)


def test_many_langs_cuts_a_word_before_it_looks_it_up(tmp_path):
    pieces = many_langs(tmp_path, np.random.default_rng(3), char_dim=0, words=["x" * 60, "y" * 48])
    long, unknown, fits, longer = NumpyManyLangs(**pieces).token_vectors(
        ["x" * 60, "unknown", "y" * 48, "y" * 60]
    )
    assert np.array_equal(long, unknown)
    assert np.array_equal(fits, longer)
    assert not np.array_equal(fits, unknown)


def test_the_allennlp_weights_are_the_same_model():
    """Both are one architecture but for the characters: run them through NumpyManyLangs' cells."""
    options = bilm_options(n_highway=2)
    weights = bilm_weights(options, np.random.default_rng(4))
    state = allennlp_state_dict(options, weights, prefix="x.")
    state = {name.removeprefix("x."): tensor.numpy() for name, tensor in state.items()}
    embedder = {
        name.removeprefix("_elmo_lstm._token_embedder."): array
        for name, array in state.items()
        if "_token_embedder" in name
    }
    renamed = {"char_emb_layer.embedding.weight": embedder.pop("_char_embedding_weights")}
    assert renamed["char_emb_layer.embedding.weight"].shape == (262, 4)
    assert not renamed["char_emb_layer.embedding.weight"][0].any()
    for name, array in embedder.items():
        name = name.replace("char_conv_", "convolutions.").replace("_highways", "highways")
        renamed[name.replace("_projection", "projection")] = array
    encoder = {
        name.removeprefix("_elmo_lstm._elmo_lstm."): array
        for name, array in state.items()
        if name.startswith("_elmo_lstm._elmo_lstm.")
    }
    characters = {chr(byte): byte + 1 for byte in range(128)}
    # that package swaps the marks of a word
    characters |= {"<bos>": 257, "<eos>": 258, "<eow>": 259, "<bow>": 260, "<pad>": 261}
    config = {
        "encoder": options["lstm"],
        "token_embedder": {**options["char_cnn"], "word_dim": 0, "char_dim": 4},
    }
    batch = [["The", "cat", "sat", "."], ["x"]]
    translated = NumpyManyLangs(config, characters | {"<oov>": 0}, None, renamed, encoder)
    original = NumpyElmo(options, weights).layers_with_boundaries(batch)[0]
    for one, other in zip(translated.layers_with_boundaries(batch), original, strict=True):
        assert_allclose(one, other, atol=1e-6)  # the folded forget bias is rounded to float32
    assert {name for name in state if "scalar" in name} == {
        "scalar_mix_0.gamma",
        *(f"scalar_mix_0.scalar_parameters.{k}" for k in range(3)),
    }


# Small pieces


def test_sigmoid_never_overflows():
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        values = sigmoid(np.array([-1e4, -1.0, 0.0, 1.0, 1e4], np.float32))
    assert_allclose(values, [0, 1 / (1 + np.e), 0.5, np.e / (1 + np.e), 1], atol=1e-7)


def test_equal_weights_mix_to_the_average():
    stack = np.random.default_rng(5).normal(size=(3, 2, 5, 4))
    assert_allclose(scalar_mix(stack, np.zeros(3), 2.0), 2 * stack.mean(axis=0))
    assert_allclose(scalar_mix(stack, [-9e10, 1, -9e10], 1.0), stack[1])


@pytest.mark.parametrize("norm", [layer_norm_allennlp, layer_norm_bilm])
def test_one_mean_and_variance_serve_a_whole_layer(norm):
    rng = np.random.default_rng(6)
    stack, mask = padded([rng.normal(3, 2, (3, 5, 4)), rng.normal(-1, 2, (3, 2, 4))])
    normalised = norm(stack, mask)
    for layer in range(3):
        counted = normalised[layer][mask]
        assert_allclose([counted.mean(), counted.std()], [0, 1], atol=1e-10)
        ratio = np.ptp(stack[layer]) / np.ptp(normalised[layer])
        assert_allclose(ratio, stack[layer][mask].std())


def test_the_token_norm_treats_each_vector_alone():
    normalised = layer_norm_token(np.random.default_rng(7).normal(3, 2, (3, 2, 5, 4)))
    assert_allclose(normalised.mean(axis=-1), 0, atol=1e-10)
    assert_allclose(normalised.std(axis=-1), 1)
