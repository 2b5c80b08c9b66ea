"""Poolings with attention and projection, several in a file, and in a model folder."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import elmore
from elmore.embed.pooling import pool
from elmore.errors import ConfigError, DataError
from elmore.weights import checksums, folder, pretrained
from elmore.weights.pooling import TextPooling, read_poolings, write_poolings
from tests.formats import make
from tests.support.toy_pooling import WIDTH, make_pooling

TEXTS = ["two ships wait", "a storm", ""]


def plain(width, **changes):
    return TextPooling(mean=np.zeros(width), components=np.zeros((0, width)), **changes)


@pytest.fixture
def model(tmp_path):
    """A model folder with recorded checksums, as that of an installed model."""
    path = tmp_path / "model"
    folder.save(make.embedder().bundle, path)
    for file in list(path.iterdir()):
        checksums.write_record(file, checksums.file_sha256(file))
    return path


def test_attention_weighs_tokens_by_the_exponential_of_their_score():
    how = plain(2, attention=np.array([math.log(3), 0]))
    vectors = np.array([[1, 0], [0, 4]], np.float32)  # weights 3 and 1
    assert_allclose(pool(["a", "b"], vectors, how), [0.75, 1], rtol=1e-6)
    assert_allclose(pool(["a", "b"], 1000 * vectors, how), [1000, 0])  # no overflow


def test_attention_multiplies_the_weight_by_frequency():
    how = plain(1, attention=np.array([math.log(3)]), frequencies={"the": 0.003}, smoothing=0.001)
    vectors = np.array([[1], [0]], np.float32)  # weights 3/4 and 1
    assert_allclose(pool(["the", "bank"], vectors, how), [3 / 7], rtol=1e-6)


def test_the_projection_comes_last_with_a_scale_for_each_row():
    how = replace(
        plain(2),
        mean=np.array([1.0, 1]),
        projection=np.array([[1, 2], [0, 3], [-1, 0]], np.int8),
        scales=np.array([0.5, 1, 2], np.float16),
    )
    assert how.width == 3
    assert_allclose(pool(["a"], np.array([[2, 3]], np.float32), how), [2.5, 6, -2])
    assert_array_equal(pool([], np.zeros((0, 2), np.float32), how), np.zeros(3))


def test_all_layers_are_put_side_by_side():
    how = plain(4, all_layers=True)
    layers = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32)  # (layers, tokens, width)
    assert_array_equal(pool(["a", "b"], layers, how), [2, 3, 6, 7])


def test_several_poolings_of_a_file_come_back_in_order(tmp_path):
    made = make_pooling(make.embedder())
    other = plain(2, frequencies={"the": 0.5})
    write_poolings(tmp_path / "poolings.npz", {"b": made, "a": other})
    found = read_poolings(tmp_path / "poolings.npz")
    assert list(found) == ["b", "a"]
    for name, expected in (("b", made), ("a", other)):
        assert found[name].digest == expected.digest
        assert found[name].origin == expected.origin
    with pytest.raises(DataError, match=r"poolings.npz: not a readable pooling \(it has 2: b, a"):
        TextPooling.load(tmp_path / "poolings.npz")


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": np.zeros(3)},
        {"attention": np.array([np.nan, 0])},
        {"projection": np.zeros((1, 2), np.int8)},
        {"scales": np.zeros(1)},
        {"projection": np.zeros((1, 3), np.int8), "scales": np.zeros(1)},
        {"projection": np.zeros((1, 2)), "scales": np.zeros(1)},
        {"projection": np.zeros((1, 2), np.int8), "scales": np.array([np.inf])},
        {"projection": np.zeros(2, np.int8), "scales": np.zeros(())},
        {"projection": np.zeros((1, 3, 2), np.int8), "scales": np.zeros((1, 3))},
    ],
)
def test_parts_that_do_not_fit_are_refused(changes):
    with pytest.raises(DataError):
        plain(2, **changes)


@pytest.mark.parametrize(
    "arrays",
    [["mean"], ["mean", "components", "words"], ["mean", "components", "mean"], []],
)
def test_a_file_that_names_other_arrays_is_refused(tmp_path, arrays):
    entry = {"smoothing": 1, "frequencies": {}, "arrays": arrays}
    text = json.dumps({"format": 2, "poolings": {"a": entry}}).encode()
    arrays = {"0.mean": np.zeros(2), "0.components": np.zeros((0, 2))}
    np.savez(tmp_path / "p.npz", words=np.frombuffer(text, np.uint8), **arrays)
    with pytest.raises(DataError, match="arrays must be mean, components"):
        read_poolings(tmp_path / "p.npz")


def test_a_pooling_is_added_without_a_change_to_the_model(model):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    plain_elmo = elmore.load(model)
    made = make_pooling(plain_elmo)
    folder.add_pooling(model, "toy", made)
    after = {path.name: path.read_bytes() for path in model.iterdir()}
    assert after.keys() - before.keys() == {"poolings.npz", "poolings.npz.sha256"}
    assert {name: after[name] for name in before} == before
    checksums.verify(model, ["poolings.npz"], advice="")

    elmo = elmore.load(model)
    for one, two in zip(elmo.embed(TEXTS), plain_elmo.embed(TEXTS), strict=True):
        assert_array_equal(one.vectors, two.vectors)
    assert_array_equal(elmo.encode(TEXTS), plain_elmo.encode(TEXTS, pool=made))
    assert elmo.encode(TEXTS).shape == (3, WIDTH)
    assert elmo.encode([]).shape == (0, WIDTH)
    assert_array_equal(elmo.encode(TEXTS, pool="toy"), elmo.encode(TEXTS))
    assert_array_equal(elmo.encode(TEXTS, pool="mean"), plain_elmo.encode(TEXTS))
    assert_array_equal(elmo.encode(TEXTS, layers=0), plain_elmo.encode(TEXTS, layers=0))


def test_a_copy_of_a_model_keeps_its_poolings_and_a_shortened_one_has_none(model, tmp_path):
    folder.add_pooling(model, "toy", make_pooling(make.embedder()))
    bundle = pretrained.load(model)
    folder.save(bundle, tmp_path / "copy")
    assert "random numbers" in (tmp_path / "copy" / "README.md").read_text()
    assert list(pretrained.load(tmp_path / "copy").poolings) == ["toy"]
    assert bundle.up_to_layer(1).poolings == {}


def test_a_pooling_of_another_model_or_under_another_meaning_is_refused(model):
    with pytest.raises(DataError, match=r"takes vectors of width 2, those of the model have"):
        folder.add_pooling(model, "toy", plain(2))
    for name in ("mean", "learned", "", "a b", "../a"):
        with pytest.raises(ConfigError, match="expected letters, digits"):
            folder.add_pooling(model, name, make_pooling(make.embedder()))
    assert not (model / "poolings.npz").exists()


def test_a_model_folder_with_poolings_of_another_model_is_refused(model):
    path = model / "poolings.npz"
    write_poolings(path, {"toy": plain(2)})
    with pytest.raises(DataError, match=r"poolings\.npz: this pooling takes vectors of width 2"):
        folder.load(model)
    make_pooling(make.embedder()).save(path)  # without a name
    with pytest.raises(ConfigError, match=r"poolings\.npz: pooling name '': expected letters"):
        folder.load(model)
    path.unlink()
    path.symlink_to("absent.npz")
    with pytest.raises(DataError, match=r"poolings\.npz: .*cannot be read"):
        folder.load(model)


def test_unknown_names_and_layers_that_do_not_fit_are_refused(model):
    folder.add_pooling(model, "toy", make_pooling(make.embedder()))
    elmo = elmore.load(model)
    with pytest.raises(ConfigError, match="pool='tyo': this model has 'mean', 'max', 'toy'"):
        elmo.encode(TEXTS, pool="tyo")
    with pytest.raises(ConfigError, match="layers=0: this pooling takes all layers"):
        elmo.encode(TEXTS, pool="toy", layers=0)
    with pytest.raises(ConfigError, match="'all' is not possible"):
        elmo.encode(TEXTS, pool="mean", layers="all")
