"""Whatever a user can get wrong is one sentence, exit 1, and nothing written or harmed."""

import io
import json
import os
import pickle
import resource
import subprocess
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import (
    allennlp_state_dict,
    bilm_options,
    bilm_weights,
    many_langs,
    write_bilm,
)


@pytest.fixture
def files(tmp_path, rng):
    source = tmp_path / "source"
    source.mkdir()
    settings = bilm_options()
    return write_bilm(source, settings, bilm_weights(settings, rng))


def refused(*sources: object, dest: Path, to: str = "elmore") -> str:
    """Convert, and give the one sentence of the refusal."""
    before = contents(dest.parent)
    result = run_elmore("convert", *map(str, sources), str(dest), "--to", to)
    assert result.code == 1, result
    assert result.out == ""
    assert result.err.startswith("elmore: ")
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err
    assert contents(dest.parent) == before, "something was written or changed"
    return result.err


def contents(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def change(path: Path, **settings: object) -> None:
    """Set keys of the lstm section."""
    options = json.loads(path.read_text())
    options["lstm"] |= settings
    path.write_text(json.dumps(options))


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.95])
def test_a_truncated_hdf5_file(files, tmp_path, keep):
    data = files[1].read_bytes()
    files[1].write_bytes(data[: int(keep * len(data) if keep < 1 else keep)])
    sentence = refused(*files, dest=tmp_path / "out")
    assert "weights.hdf5: not a readable HDF5 file" in sentence
    assert "is the download complete?" in sentence


def test_a_foreign_hdf5_file(files, tmp_path):
    with h5py.File(files[1], "w") as file:
        file["images"] = np.zeros((3, 3))
    assert "has images and no weights of an ELMo model" in refused(*files, dest=tmp_path / "out")


def test_a_file_that_is_not_hdf5_is_refused(files, tmp_path):
    files[1].write_text("<html>404</html>")
    assert "not a readable HDF5 file" in refused(*files, dest=tmp_path / "out")


def test_damaged_bytes_inside_an_hdf5_file_never_end_in_a_traceback(files, tmp_path, rng):
    data = bytearray(files[1].read_bytes())
    for place in rng.integers(0, 4000, 60):
        changed = bytearray(data)
        changed[place : place + 8] = b"\xff" * 8
        files[1].write_bytes(bytes(changed))
        result = run_elmore("convert", *map(str, files), str(tmp_path / f"out{place}"))
        assert result.code in (0, 1), result
        assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"projection_dim": 5}, "has shape"),
        ({"dim": 12}, "has shape"),
        ({"n_layers": 3}, "Cell2/LSTMCell/W_0 is missing"),
        ({"n_layers": 1}, "is not part of the"),
    ],
)
def test_the_options_of_another_model(files, tmp_path, settings, found):
    change(files[0], **settings)
    sentence = refused(*files, dest=tmp_path / "out")
    assert found in sentence
    assert "same model?" in sentence


def test_a_missing_dataset(files, tmp_path):
    with h5py.File(files[1], "a") as file:
        del file["CNN/W_cnn_1"]
    assert "weights.hdf5: CNN/W_cnn_1 is missing" in refused(*files, dest=tmp_path / "out")


def test_a_wrong_shape_is_named_with_both_shapes(files, tmp_path):
    with h5py.File(files[1], "a") as file:
        del file["CNN/W_cnn_1"]
        file["CNN/W_cnn_1"] = np.zeros((1, 2, 4, 3), "float32")
    sentence = refused(*files, dest=tmp_path / "out")
    assert "CNN/W_cnn_1 has shape (1, 2, 4, 3), the configuration asks for (1, 2, 4, 8)" in sentence


def test_weights_of_another_kind_of_number(files, tmp_path):
    with h5py.File(files[1], "a") as file:
        shape = file["CNN_proj/b_proj"].shape
        del file["CNN_proj/b_proj"]
        file["CNN_proj/b_proj"] = np.full(shape, b"x")
    assert "expected floating-point numbers" in refused(*files, dest=tmp_path / "out")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_numbers(files, tmp_path, value):
    with h5py.File(files[1], "a") as file:
        file["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B"][3] = value
    sentence = refused(*files, dest=tmp_path / "out")
    assert "Cell1/LSTMCell/B has 1 values that are not finite" in sentence


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "not a readable JSON file"),
        ("[]", "expected a JSON object, found list"),
        ("{}", "missing key 'lstm'"),
        ('{"lstm": {"dim": 4}}', "lstm: missing key 'projection_dim'"),
        ('{"lstm": {"dim": 4, "projection_dim": "x"}}', "options.json"),
        ('{"lstm": 3}', "lstm: expected a section of keys, found 3"),
        ("[" * 100_000, "not a readable JSON file"),
        ('{"lstm": {"dim": 10.0, "projection_dim": 6}}', "dim: expected int, found 10.0"),
        (f'{{"lstm": {{"dim": {10**30}, "projection_dim": 6}}, "n_tokens_vocab": 3}}', "64-bit"),
        (
            f'{{"lstm": {{"dim": 10, "projection_dim": 6, "cell_clip": {10**400}}}}}',
            "expected a 64-bit number",
        ),
        ('{"lstm": {"dim": 10, "projection_dim": 6, "use_skip_connections": "no"}}', "bool"),
        ('{"lstm": {"dim": 10, "projektion_dim": 6}}', "did you mean 'projection_dim'?"),
        ('{"lstm": {"dim": 10, "projection_dim": 6}, "char_cnn": {}}', "missing key 'activation'"),
        ('{"lstm": {"dim": 10, "projection_dim": 6}}', "nor 'n_tokens_vocab' is there"),
    ],
)
def test_invalid_options_are_refused(files, tmp_path, text, found):
    files[0].write_text(text)
    assert found in refused(*files, dest=tmp_path / "out")


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("n_characters", 300, "must be 261 (training) or 262 (prediction), found 300"),
        ("activation", "selu", "expected one of 'relu', 'tanh', found 'selu'"),
        ("filters", [[0, 4]], "pairs of at least 1"),
        ("filters", "wide", "options.json"),
        ("max_characters_per_token", 2, "max_characters (2)"),
    ],
)
def test_invalid_character_options_are_refused(files, tmp_path, key, value, found):
    options = json.loads(files[0].read_text())
    options["char_cnn"][key] = value
    files[0].write_text(json.dumps(options))
    assert found in refused(*files, dest=tmp_path / "out")


class _Exploding:
    def __reduce__(self):
        return (os.system, ("touch exploded",))


@pytest.mark.parametrize("writer", [pickle.dumps, lambda thing: saved_by_torch(thing)])
def test_a_pickle_that_tries_to_run_code(tmp_path, writer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.th").write_bytes(writer({"a": _Exploding()}))
    assert "could run code" in refused(tmp_path / "model.th", dest=tmp_path / "out")
    assert not (tmp_path / "exploded").exists()


def saved_by_torch(thing: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


def test_a_many_langs_folder_with_a_pickle_that_tries_to_run_code(tmp_path, rng, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    many_langs(tmp_path / "m", rng)
    (tmp_path / "m" / "encoder.pkl").write_bytes(pickle.dumps(_Exploding()))
    assert "encoder.pkl: refused" in refused(tmp_path / "m", dest=tmp_path / "out")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("thing", [[torch.zeros(1)], {"a": 3}, torch.zeros(1)])
def test_a_torch_file_that_is_no_state_dict(tmp_path, thing):
    torch.save(thing, tmp_path / "model.th")
    assert "expected a state_dict" in refused(tmp_path / "model.th", dest=tmp_path / "out")


@pytest.mark.parametrize("steps", [b".", b"K\x01K\x02K\x03s.", b"}K\x01a."])
def test_a_torch_file_whose_pickle_takes_impossible_steps(tmp_path, steps):
    (tmp_path / "model.th").write_bytes(b"\x80\x02" + steps)
    assert "model.th: " in refused(tmp_path / "model.th", dest=tmp_path / "out")


def test_a_state_dict_of_something_else(tmp_path):
    torch.save({"layer.weight": torch.zeros(1)}, tmp_path / "model.th")
    assert "AllenNLP Elmo module?" in refused(tmp_path / "model.th", dest=tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.pop("_elmo_lstm._elmo_lstm.forward_layer_0.state_projection.weight"),
        lambda t: t.pop("_elmo_lstm._token_embedder.char_conv_0.weight"),
        lambda t: t.pop("scalar_mix_0.scalar_parameters.1"),
        lambda t: t.update({"scalar_mix_0.gamma": torch.zeros(3)}),
        lambda t: t.update({"_elmo_lstm._token_embedder._char_embedding_weights": torch.zeros(3)}),
        lambda t: t.update({"_elmo_lstm._token_embedder.char_conv_0.weight": torch.zeros(3, 3)}),
        lambda t: t.update({k: v.to(torch.complex64) for k, v in t.items()}),
        lambda t: t.update({k: v.long() for k, v in t.items()}),
    ],
)
def test_a_state_dict_that_is_not_whole(tmp_path, rng, change):
    settings = bilm_options()
    tensors = allennlp_state_dict(settings, bilm_weights(settings, rng))
    change(tensors)
    torch.save(tensors, tmp_path / "model.th")
    assert "model.th: " in refused(tmp_path / "model.th", dest=tmp_path / "out")


@pytest.mark.parametrize(
    "name",
    [
        "_elmo_lstm._elmo_lstm.forward_layer_0.state_projection.weight",
        "scalar_mix_0.scalar_parameters.1",
        "scalar_mix_0.gamma",
    ],
)
@pytest.mark.parametrize("value", [1e39, float("nan")])
def test_a_state_dict_with_a_number_that_float32_does_not_have(tmp_path, rng, name, value):
    settings = bilm_options()
    tensors = allennlp_state_dict(settings, bilm_weights(settings, rng))
    tensors[name] = tensors[name].double()
    tensors[name].flatten()[0] = value
    torch.save(tensors, tmp_path / "model.th")
    sentence = refused(tmp_path / "model.th", dest=tmp_path / "out")
    assert f"{name.removeprefix('_elmo_lstm.')} has 1 values that are not finite" in sentence


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        (None, "encoder", 3),
        ("encoder", "name", 5),
        ("encoder", "name", "lstm"),
        ("encoder", "n_layers", 2.0),
        ("encoder", "cell_clip", "x"),
        ("token_embedder", "filters", [[1]]),
        ("token_embedder", "activation", "gelu"),
        ("token_embedder", "name", "lstm"),
        ("token_embedder", "max_characters_per_token", None),
    ],
)
def test_an_invalid_many_langs_configuration_is_refused(tmp_path, rng, section, key, value):
    (tmp_path / "m").mkdir()
    many_langs(tmp_path / "m", rng)
    (path,) = (tmp_path / "m").glob("cnn_*.json")
    settings = json.loads(path.read_text())
    (settings[section] if section else settings)[key] = value
    path.write_text(json.dumps(settings))
    assert f"{path}: " in refused(tmp_path / "m", dest=tmp_path / "out")


def test_a_many_langs_folder_without_its_configuration(tmp_path, rng):
    (tmp_path / "m").mkdir()
    many_langs(tmp_path / "m", rng)
    (path,) = (tmp_path / "m").glob("cnn_*.json")
    path.unlink()
    sentence = refused(tmp_path / "m", dest=tmp_path / "out")
    assert "but there is no such file beside it; copy the file" in sentence
    assert path.name in sentence


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "..", None])
def test_a_many_langs_folder_whose_configuration_has_a_name_no_file_can_have(tmp_path, rng, name):
    (tmp_path / "m").mkdir()
    many_langs(tmp_path / "m", rng)
    (tmp_path / "m" / "config.json").write_text(json.dumps({"config_path": name}))
    sentence = refused(tmp_path / "m", dest=tmp_path / "out")
    assert "but there is no such file beside it; copy the file" in sentence


@pytest.mark.parametrize("name", ["char.dic", "word.dic", "config.json"])
@pytest.mark.parametrize("text", [None, "", "a\tb\tc\n", "a\t0\nb\t0\n", "a\t7\n"])
def test_a_many_langs_folder_with_a_file_that_is_not_one(tmp_path, rng, name, text):
    (tmp_path / "m").mkdir()
    many_langs(tmp_path / "m", rng)
    (tmp_path / "m" / name).unlink()
    if text is not None:
        (tmp_path / "m" / name).write_text(text)
    assert str(tmp_path / "m") in refused(tmp_path / "m", dest=tmp_path / "out")


def test_a_vocabulary_for_a_model_that_takes_none(files, tmp_path):
    path = converted(files, tmp_path)
    result = run_elmore("info", str(path), "--vocabulary", str(files[0]))
    assert result.code == 1
    assert "has its own vocabulary" in result.err


def test_an_unrelated_vocabulary_beside_a_character_model_is_ignored(files, tmp_path):
    (files[0].parent / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    assert converted(files, tmp_path).is_dir()


@pytest.mark.parametrize("data", [b"", b"nothing like it", b"PK\x03\x04 cut short"])
def test_a_damaged_torch_file(tmp_path, data):
    (tmp_path / "model.th").write_bytes(data)
    sentence = refused(tmp_path / "model.th", dest=tmp_path / "out")
    assert "model.th: " in sentence


def test_a_zip_that_climbs_out_of_its_folder(tmp_path):
    with zipfile.ZipFile(tmp_path / "144.zip", "w") as archive:
        archive.writestr("../escaped.txt", "x")
    assert "../escaped.txt" in refused(tmp_path / "144.zip", dest=tmp_path / "out")


def test_a_zip_that_is_a_bomb(tmp_path):
    with zipfile.ZipFile(tmp_path / "144.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights.hdf5", bytes(200 << 20))
    assert "would unpack to" in refused(tmp_path / "144.zip", dest=tmp_path / "out")


def test_a_zip_of_something_else(tmp_path):
    with zipfile.ZipFile(tmp_path / "144.zip", "w") as archive:
        archive.writestr("a/holiday.jpg", "x")
    sentence = refused(tmp_path / "144.zip", dest=tmp_path / "out")
    assert "144.zip: found holiday.jpg; expected config.json and model.safetensors" in sentence


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["<S>", "</S>", "a", "b"], "lacks '<UNK>'"),
        (["<S>", "</S>", "<UNK>", "<S>"], "lists '<S>' twice, as word 1 and 4"),
        (["<S>", "</S>", "<UNK>"], "has 3 words, the options say n_tokens_vocab 4"),
        (None, "pass its vocabulary file"),
    ],
)
def test_a_vocabulary_that_cannot_be_the_models(tmp_path, rng, words, found):
    settings = bilm_options(char_cnn=None) | {"n_tokens_vocab": 4}
    paths = write_bilm(tmp_path, settings, bilm_weights(settings, rng, num_words=4))
    if words:
        (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    assert found in refused(*paths, dest=tmp_path / "out")


def test_a_directory_where_a_file_is_expected(files, tmp_path):
    sentence = refused(files[0], tmp_path, dest=tmp_path / "out")
    assert "expected a file of options or weights, found a folder" in sentence


def test_a_missing_file_is_refused(files, tmp_path):
    sentence = refused(files[0], tmp_path / "absent.hdf5", dest=tmp_path / "out")
    assert "absent.hdf5: expected a file of options or weights, found nothing" in sentence


def test_a_folder_without_a_model(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "empty: found nothing; expected" in refused(tmp_path / "empty", dest=tmp_path / "out")


def test_a_name_that_is_almost_right(tmp_path):
    sentence = refused("orignal", dest=tmp_path / "out")
    assert "no model of that name; did you mean 'original'?" in sentence


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "model.tar").write_text("x")
    assert "found a file ending in '.tar'" in refused(tmp_path / "model.tar", dest=tmp_path / "out")


def converted(files, tmp_path) -> Path:
    assert run_elmore("convert", *map(str, files), str(tmp_path / "ours")).code == 0
    return tmp_path / "ours"


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda c: c["model"]["lstm"].update(cel_dim=4), "did you mean 'cell_dim'?"),
        (lambda c: c.update(format=6), "format 6 is newer than this elmore reads (5)"),
        (lambda c: c.pop("format"), "format is None, expected a number"),
        (lambda c: c["model"]["lstm"].update(cell_dim=12), "has shape"),
        (lambda c: c["model"]["lstm"].update(cell_dim=2), "must not exceed lstm.cell_dim (2)"),
        (lambda c: c["model"]["lstm"].update(num_layers=1), "is not part of the"),
        (lambda c: c["model"]["lstm"].update(num_layers=3), "is missing"),
        (lambda c: c["alphabet"].update(kind="runes"), "expected one of 'bytes'"),
        (lambda c: c["model"]["characters"].update(padding_id=0), "does not fit"),
        (lambda c: c["model"].update(words={"num_words": 3, "dim": 2}), "does not fit"),
        (lambda c: c["model"]["lstm"].update(forget_bias=float("nan")), "finite"),
        (lambda c: c["model"]["lstm"].update(cell_dim=10**30), "expected a 64-bit number"),
        (lambda c: c["model"]["lstm"].update(cell_clip=10**400), "expected a 64-bit number"),
        (lambda c: c["alphabet"].update(kind="words"), "'words' does not fit model.characters"),
        (lambda c: c.update(mixes=[{"weights": [0, 0, 0], "gamma": 1e39}]), "finite in float32"),
        (lambda c: c.update(mixes=[{"weights": [0, -1e39, 0], "gamma": 1}]), "finite in float32"),
    ],
)
def test_a_folder_of_ours_whose_config_was_edited(files, tmp_path, edit, found):
    path = converted(files, tmp_path)
    config = json.loads((path / "config.json").read_text())
    edit(config)
    (path / "config.json").write_text(json.dumps(config))
    assert found in refused(path, dest=tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda t: t.pop("warm_state.cell"), "warm_state.cell is missing"),
        (lambda t: t.update({"warm_state.cell": torch.zeros(2, 2, 1, 3)}), "has shape"),
        (lambda t: t.update({"tokens.projection.bias": torch.zeros(6).long()}), "int64"),
        (lambda t: t.update({"tokens.projection.bias": torch.full((6,), torch.nan)}), "not finite"),
        (
            lambda t: t.update(
                {"tokens.projection.bias": torch.full((6,), -1e300, dtype=torch.float64)}
            ),
            "tokens.projection.bias has 6 values that are not finite in float32",
        ),
        (lambda t: t.update({"more": torch.zeros(6)}), "more is not part"),
    ],
)
def test_a_folder_of_ours_whose_weights_were_changed(files, tmp_path, change, found):
    path = converted(files, tmp_path)
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    assert found in refused(path, dest=tmp_path / "out")


@pytest.mark.parametrize("size", [0, 5, 200, 3000])
def test_a_folder_of_ours_whose_weights_were_cut(files, tmp_path, size):
    path = converted(files, tmp_path)
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[:size])
    sentence = refused(path, dest=tmp_path / "out")
    assert "model.safetensors: not a readable safetensors file" in sentence


def test_an_existing_destination_is_replaced_only_with_overwrite(files, tmp_path):
    path = converted(files, tmp_path)
    assert "ours exists already" in refused(*files, dest=path)
    assert "vocab" not in refused(*files, dest=path, to="allennlp")
    (path / "vocabulary.txt").write_text("old")
    assert run_elmore("convert", *map(str, files), str(path), "--overwrite").code == 0
    assert not (path / "vocabulary.txt").exists()


def test_a_destination_that_holds_something_else_is_never_replaced(files, tmp_path):
    path = converted(files, tmp_path)
    (path / "photo.jpg").write_text("dear to somebody")
    result = run_elmore("convert", *map(str, files), str(path), "--overwrite")
    assert result.code == 1
    assert "contains 'photo.jpg', which elmore did not write" in result.err
    assert (path / "photo.jpg").exists()


@pytest.mark.parametrize(
    ("to", "name"),
    [("elmore", "config.json"), ("allennlp", "options.json"), ("elmore", "README.md")],
)
def test_a_destination_with_files_named_like_ours_is_not_replaced(files, tmp_path, to, name):
    path = tmp_path / "theirs"
    path.mkdir()
    (path / name).write_text('{"architectures": ["BertModel"]}')
    result = run_elmore("convert", *map(str, files), str(path), "--overwrite", "--to", to)
    assert result.code == 1
    assert f"contains {name!r} and was not written by elmore" in result.err
    assert "BertModel" in (path / name).read_text()


@pytest.mark.parametrize("to", ["elmore", "allennlp"])
def test_a_destination_that_holds_the_source(files, to):
    before = contents(files[0].parent)
    command = ("convert", *map(str, files), str(files[0].parent), "--overwrite", "--to", to)
    result = run_elmore(*command)
    assert result.code == 1
    assert "holds the source 'options.json'" in result.err
    assert contents(files[0].parent) == before


def test_a_destination_that_is_a_file_or_below_one(files, tmp_path):
    (tmp_path / "taken").write_text("x")
    assert "exists and is not a folder" in refused(*files, dest=tmp_path / "taken")
    result = run_elmore("convert", *map(str, files), str(tmp_path / "taken" / "out"))
    assert result.code == 1
    assert result.err.count("\n") == 1


def test_models_that_the_target_format_cannot_express_are_refused(tmp_path, rng):
    (tmp_path / "m").mkdir()
    many_langs(tmp_path / "m", rng)
    sentence = refused(tmp_path / "m", dest=tmp_path / "out", to="allennlp")
    assert "cannot express words and characters side by side" in sentence


@pytest.mark.parametrize("to", ["elmore", "allennlp"])
def test_a_write_that_hits_a_limit_leaves_no_trace(files, tmp_path, to):
    """The file may grow to 20 kB and no further: what a full disk does, for any user."""

    dest = tmp_path / "place" / "out"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        done = run_elmore("convert", *map(str, files), str(dest), "--to", to)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.code == 1
    assert done.err.startswith("elmore: ")
    assert done.err.count("\n") == 1, done.err
    assert list(dest.parent.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("to", ["elmore", "allennlp"])
def test_no_space_left_while_converting(files, tmp_path, to):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", disk], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine lets not even root mount a disk")
    before = contents(files[0].parent)
    try:
        result = run_elmore("convert", *map(str, files), str(disk / "out"), "--to", to)
        assert result.code == 1, result
        assert "o space left" in result.err
        assert result.err.count("\n") == 1
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)
    assert contents(files[0].parent) == before


def test_weights_among_several_options(files, tmp_path):
    for number in (1, 2):
        files[0].with_name(f"{number}_options.json").write_bytes(files[0].read_bytes())
    files[0].unlink()
    sentence = refused(files[1], dest=tmp_path / "out")
    assert "2 options files beside it; pass the right one before it" in sentence


def test_a_storage_type_that_foreign_formats_lack_is_refused(files, tmp_path):
    before = contents(tmp_path)
    command = ("convert", *map(str, files), str(tmp_path / "out"), "--to", "allennlp")
    result = run_elmore(*command, "--storage", "int8")
    assert (result.code, result.out) == (1, "")
    assert "--storage int8 is for model folders; --to allennlp has float32" in result.err
    assert contents(tmp_path) == before
