"""Whitenings in files and in model folders."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import elmore
from elmore.errors import ConfigError, DataError
from elmore.model.native import Int8Matrix
from elmore.weights import checksums, folder, pretrained
from elmore.weights.card import model_facts
from elmore.weights.whitening import Whitening
from tests.formats import make
from tests.support.toy_whitening import make_whitening


@pytest.fixture
def model(tmp_path):
    """A model folder with recorded checksums, as that of an installed model."""
    path = tmp_path / "model"
    folder.save(make.embedder().bundle, path)
    for file in list(path.iterdir()):
        checksums.write_record(file, checksums.file_sha256(file))
    return path


def test_a_file_gives_back_what_was_saved(tmp_path):
    made = make_whitening(make.embedder())
    made.save(tmp_path / "new" / "whitening.npz")
    found = Whitening.load(tmp_path / "new" / "whitening.npz")
    assert (found.digest, found.layers, found.origin) == (made.digest, made.layers, made.origin)
    other = replace(made, mean=made.mean + 1)
    assert other.digest != made.digest


def test_numbers_of_four_bits_take_half_the_space_and_come_back(tmp_path, rng):
    numbers = rng.integers(-7, 8, (16, 32)).astype(np.int8)
    whitened = Whitening(
        layers=("1", "cloze"),
        mean=np.zeros(32, np.float32),
        projection=Int8Matrix(numbers, np.ones(16, np.float32)),
    )
    sizes = []
    for largest in (7, -8):
        numbers[3, 5] = largest
        whitened.save(tmp_path / "whitening.npz")
        sizes.append((tmp_path / "whitening.npz").stat().st_size)
        assert_array_equal(Whitening.load(tmp_path / "whitening.npz").projection.numbers, numbers)
    assert sizes[1] - sizes[0] == 16 * 32 // 2


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": ()},
        {"layers": ("top", "cloze")},
        {"layers": ("2", "9" * 5000)},
        {"layers": ("cloze",)},
        {"mean": np.zeros(3, np.float32)},
        {"mean": np.full(4, np.nan, np.float32)},
        {"mean": np.zeros(4)},
        {"projection": Int8Matrix(np.zeros((2, 4), np.float32), np.ones(2, np.float32))},
        {"projection": Int8Matrix(np.zeros((2, 4), np.int8), np.ones(3, np.float32))},
        {"projection": Int8Matrix(np.zeros((0, 4), np.int8), np.ones(0, np.float32))},
        {"projection": Int8Matrix(np.zeros(4, np.int8), np.ones((), np.float32))},
    ],
)
def test_parts_that_do_not_fit_are_refused(changes):
    plain = {
        "layers": ("1", "cloze"),
        "mean": np.zeros(4, np.float32),
        "projection": Int8Matrix(np.zeros((2, 4), np.int8), np.ones(2, np.float32)),
    }
    Whitening(**plain)
    with pytest.raises(DataError, match=r"expected|finite"):
        Whitening(**plain | changes)


def test_a_whitening_is_added_without_a_change_to_the_model(model, tmp_path):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    with pytest.raises(ConfigError, match="this model has no whitening"):
        elmore.load(model).embed([["a"]], layers="whitened")
    made = make_whitening(make.embedder())
    folder.add_whitening(model, made)
    after = {path.name: path.read_bytes() for path in model.iterdir()}
    assert after.keys() - before.keys() == {"whitening.npz", "whitening.npz.sha256"}
    assert {name: after[name] for name in before} == before
    checksums.verify(model, ["whitening.npz"], advice="")
    elmo = elmore.load(model)
    (named,), (passed,) = (elmo.embed([["a", "b"]], layers=one) for one in ("whitened", made))
    assert_array_equal(named.vectors, passed.vectors)
    bundle = pretrained.load(model)
    folder.save(bundle, tmp_path / "copy")
    assert pretrained.load(tmp_path / "copy").whitening.digest == made.digest
    assert "random numbers" in model_facts(bundle)["whitening"]
    assert bundle.up_to_layer(1).whitening is None


def test_a_whitening_of_another_model_is_refused(model):
    made = make_whitening(make.embedder())
    numbers, scales = made.projection
    half = Int8Matrix(numbers[: len(scales) // 2, : len(scales)], scales[: len(scales) // 2])
    narrow = replace(made, mean=made.mean[: len(scales)], projection=half)
    for other in (narrow, replace(made, layers=("7", "cloze"))):
        with pytest.raises(DataError, match="learn one with this model"):
            folder.add_whitening(model, other)
        assert not (model / "whitening.npz").exists()
        other.save(model / "whitening.npz")
        with pytest.raises(DataError, match=r"whitening\.npz: .*learn one with this model"):
            folder.load(model)
        (model / "whitening.npz").unlink()
    (model / "whitening.npz").symlink_to("absent.npz")
    with pytest.raises(DataError, match=r"whitening\.npz: .*cannot be read"):
        folder.load(model)
