"""What is read can be written again: bit for bit in HDF5, exactly in our own folder."""

import json
import tempfile
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmore
from elmore.weights import folder, pretrained, warm
from elmore.weights.convert import bilm_tf
from tests.contracts.test_numpy_parity import options
from tests.support.fake_checkpoints import (
    allennlp_state_dict,
    bilm_options,
    bilm_weights,
    many_langs,
    read_bilm,
    write_bilm,
)
from tests.support.sweeps import pick

BATCH = [["The", "bank", "."], [], ["naïve", "日本", "x" * 70]]


def check_same_files(first: tuple[Path, Path], second: Path) -> None:
    old_options, old = read_bilm(*first)
    new_options, new = read_bilm(second / "options.json", second / "weights.hdf5")
    assert new_options == old_options
    assert new.keys() == old.keys()
    for name, array in old.items():
        assert new[name].dtype == array.dtype
        assert new[name].tobytes() == array.tobytes(), name


@given(options(), st.integers(0, 2**32 - 1))
@settings(max_examples=pick(8, 40))
def test_hdf5_to_ours_to_hdf5_is_bit_identical(settings, seed):
    weights = bilm_weights(settings, np.random.default_rng(seed))
    weights["char_embed"][0, 0] = -0.0  # a sign that only bits tell apart
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        paths = write_bilm(path, settings | {"n_epochs": 10, "anything": [1, None]}, weights)
        folder.save(pretrained.load(*paths), path / "ours")
        bilm_tf.write_bilm_tf(pretrained.load(path / "ours"), path / "theirs")
        check_same_files(paths, path / "theirs")


@pytest.mark.parametrize("name", ["allennlp", "bilm-tf/model"])
def test_published_files_come_back_bit_identical(fixtures, tmp_path, name):
    paths = (fixtures / name / "options.json", fixtures / name / "lm_weights.hdf5")
    folder.save(pretrained.load(*paths), tmp_path / "ours")
    bilm_tf.write_bilm_tf(pretrained.load(tmp_path / "ours"), tmp_path / "theirs")
    check_same_files(paths, tmp_path / "theirs")


def make(kind: str, directory: Path, rng: np.random.Generator) -> tuple[Path, ...]:
    """A tiny model of each family, as the arguments of `load`."""
    settings = bilm_options()
    if kind == "many-langs":
        many_langs(directory, rng)
        return (directory,)
    if kind == "words":
        settings = bilm_options(char_cnn=None) | {"n_tokens_vocab": 4}
        (directory / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nbank\n")
        return write_bilm(directory, settings, bilm_weights(settings, rng, num_words=4))
    weights = bilm_weights(settings, rng)
    if kind == "state_dict":
        torch.save(allennlp_state_dict(settings, weights), directory / "model.th")
        return (directory / "model.th",)
    return write_bilm(directory, settings, weights)


@pytest.mark.parametrize("kind", ["hdf5", "words", "many-langs", "state_dict"])
def test_any_family_gives_the_same_vectors_from_our_folder(tmp_path, rng, kind):
    (tmp_path / "theirs").mkdir()
    bundle = warm.add_warm_state(pretrained.load(*make(kind, tmp_path / "theirs", rng)))
    folder.save(bundle, tmp_path / "ours")
    again = folder.load(tmp_path / "ours")
    assert again.config == bundle.config
    assert again.alphabet == bundle.alphabet
    assert again.vocabulary == bundle.vocabulary
    assert (again.card, again.options, again.mixes) == (bundle.card, bundle.options, bundle.mixes)
    for start in ("zero", "warm"):
        pair = [elmore.Embedder(b, initial_state=start) for b in (bundle, again)]
        one, other = (elmo.embed(BATCH, layers="all") for elmo in pair)
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a.vectors, b.vectors)


def test_a_vocabulary_model_goes_back_with_its_words(tmp_path, rng):
    paths = make("words", tmp_path, rng)
    bilm_tf.write_bilm_tf(pretrained.load(*paths), tmp_path / "back")
    check_same_files(paths, tmp_path / "back")
    assert (tmp_path / "back" / "vocab.txt").read_bytes() == (tmp_path / "vocab.txt").read_bytes()


def test_an_elmore_model_gets_an_equivalent_options_file(tmp_path, rng):
    bundle = pretrained.load(*make("hdf5", tmp_path, rng)).up_to_layer(1)
    bilm_tf.write_bilm_tf(bundle, tmp_path / "out")
    options_json = json.loads((tmp_path / "out" / "options.json").read_text())
    assert options_json["lstm"]["n_layers"] == 1
    again = pretrained.load(tmp_path / "out")
    assert again.config == bundle.config
    one, other = (elmore.Embedder(b).embed(BATCH) for b in (bundle, again))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.vectors, b.vectors)


def test_a_one_layer_dump_without_its_usual_level_is_read(tmp_path, rng):
    settings = bilm_options(n_layers=1)
    weights = bilm_weights(settings, rng)
    usual = pretrained.load(*write_bilm(tmp_path, settings, weights))
    flat = {name.replace("MultiRNNCell/Cell0/", ""): array for name, array in weights.items()}
    assert flat.keys() != weights.keys()
    (tmp_path / "flat").mkdir()
    bundle = pretrained.load(*write_bilm(tmp_path / "flat", settings, flat))
    for name, weight in usual.model.state_dict().items():
        assert torch.equal(weight, bundle.model.state_dict()[name])


def test_half_and_double_precision_files_are_read(tmp_path, rng):
    settings = bilm_options()
    weights = bilm_weights(settings, rng)
    options_path, path = write_bilm(tmp_path, settings, weights)
    for dtype in ("float16", "float64"):
        with h5py.File(path, "w") as file:
            for name, array in weights.items():
                file[name] = array.astype(dtype)
        loaded = pretrained.load(options_path, path).model.state_dict()
        expected = torch.from_numpy(weights["char_embed"].astype(dtype).astype("float32"))
        assert torch.equal(loaded["tokens.characters.embedding.weight"], expected)


@pytest.mark.parametrize("kind", ["hdf5", "words", "many-langs", "state_dict", "ours"])
@pytest.mark.parametrize("nested", [True, False])
def test_a_zip_of_any_of_these_is_the_same_model(tmp_path, rng, kind, nested):
    source = tmp_path / "source"
    source.mkdir()
    bundle = pretrained.load(*make("hdf5" if kind == "ours" else kind, source, rng))
    if kind == "ours":
        source = tmp_path / "ours"
        folder.save(bundle, source)
    with zipfile.ZipFile(tmp_path / "144.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in source.iterdir():
            archive.write(path, f"inner/{path.name}" if nested else path.name)
    zipped = elmore.load(tmp_path / "144.zip")
    for a, b in zip(zipped.embed(BATCH), elmore.Embedder(bundle).embed(BATCH), strict=True):
        np.testing.assert_array_equal(a.vectors, b.vectors)


def test_training_a_loaded_model_leaves_its_file_alone(tmp_path, rng):
    """The weights are mapped from the file: a step of an optimiser must stay in memory."""
    bundle = pretrained.load(*make("hdf5", tmp_path, rng))
    folder.save(bundle, tmp_path / "ours")
    before = (tmp_path / "ours" / "model.safetensors").read_bytes()
    model = folder.load(tmp_path / "ours").model
    with torch.no_grad():
        for weight in model.parameters():
            weight += 1.0
    assert (tmp_path / "ours" / "model.safetensors").read_bytes() == before


def test_half_precision_folders_are_for_the_disk_alone(tmp_path, rng):
    bundle = pretrained.load(*make("hdf5", tmp_path, rng))
    bundle.model.half()
    folder.save(bundle, tmp_path / "ours")
    again = folder.load(tmp_path / "ours")
    assert {weight.dtype for weight in again.model.parameters()} == {torch.float32}
    for name, weight in bundle.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weight.float())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("many-langs", "words and characters side by side"), ("state_dict", "a forget bias of 0.0")],
)
def test_models_that_hdf5_cannot_express_are_refused_in_one_sentence(tmp_path, rng, kind, reason):
    (tmp_path / "theirs").mkdir()
    bundle = pretrained.load(*make(kind, tmp_path / "theirs", rng))
    with pytest.raises(elmore.WeightsError, match=f"cannot express {reason}"):
        bilm_tf.write_bilm_tf(bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()
