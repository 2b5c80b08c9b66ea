"""TensorFlow's checkpoints are the same models as the HDF5 files dumped from them."""

import json
import logging
import shutil
import zipfile

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch.testing import assert_close

import elmore
from elmore.weights import folder, pretrained
from elmore.weights.convert import bilm_tf, tensor_bundle
from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import bilm_options, bilm_weights, read_bilm, write_bilm
from tests.support.tensorflow_checkpoints import (
    block,
    entry,
    field,
    masked_crc,
    module_variables,
    table,
    training_variables,
    varint,
    write_checkpoint,
    write_module,
)

BATCH = [["The", "bank", "."], ["naïve", "日本"], []]
WORDS = ("</S>", "<S>", "<UNK>", "the", "bank")  # the order that the published list begins with


def same_network(bundle, other) -> None:
    assert bundle.config == other.config
    for name, weight in other.model.state_dict().items():
        assert torch.equal(bundle.model.state_dict()[name], weight), name


@pytest.fixture
def settings() -> dict:
    return bilm_options(n_highway=2)


@pytest.fixture
def weights(settings, rng) -> dict:
    return bilm_weights(settings, rng)


@pytest.fixture
def dumped(tmp_path, settings, weights):
    return pretrained.load(*write_bilm(tmp_path / "dumped", settings, weights))


@pytest.fixture
def run(tmp_path, settings, weights, rng):
    """A folder of bilm-tf's training: options, two checkpoints and the list that names the last."""
    path = tmp_path / "run"
    softmax = bilm_weights({"lstm": settings["lstm"]}, rng, num_words=len(WORDS))["embedding"]
    bias = rng.normal(0, 1, len(WORDS)).astype(np.float32)
    older = {name: array + 1 for name, array in weights.items()}
    write_checkpoint(path / "model.ckpt-9", training_variables(older, (softmax, bias)))
    variables = training_variables(weights, (softmax, bias))
    write_checkpoint(path / "model.ckpt-10", variables)
    settings = json.loads(json.dumps(settings))
    settings["char_cnn"]["n_characters"] = 261
    (path / "options.json").write_text(json.dumps(settings | {"n_epochs": 10, "dropout": 0.1}))
    (path / "checkpoint").write_text(
        'model_checkpoint_path: "/somewhere/else/model.ckpt-10"\n'
        'all_model_checkpoint_paths: "model.ckpt-9"\n'
        'all_model_checkpoint_paths: "model.ckpt-10"\n'
    )
    return path


def test_the_crc_of_the_files_here_is_the_standard_one():
    unmasked = (masked_crc(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF
    assert (unmasked >> 17 | unmasked << 15) & 0xFFFFFFFF == 0xE3069283


@pytest.mark.parametrize("rows_per_block", [1, 3, 100])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_every_tensor_of_a_checkpoint_is_read(tmp_path, rng, rows_per_block, num_parts):
    arrays = {
        "a": rng.normal(size=(2, 3)).astype(np.float32),
        "a/b" + "c" * 200: rng.normal(size=4),
        "é": np.float16([[1, 2]]),
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 3), np.float32),
        **{f"many/{i:03}": np.float32([i]) for i in range(150)},
    }
    index = write_checkpoint(
        tmp_path / "x", arrays, num_parts=num_parts, rows_per_block=rows_per_block
    )
    result = tensor_bundle.open_index(index)
    assert set(result) == set(arrays)
    for name, array in arrays.items():
        assert result.shape(name) == array.shape
        assert_array_equal(result[name].numpy(), array.astype(np.float32))


@pytest.mark.parametrize("source", ["folder", "index", "name", "pair"])
def test_a_training_run_loads_as_the_model_exported_from_it(run, dumped, source):
    sources = {
        "folder": [run],
        "index": [run / "model.ckpt-10.index"],
        "name": [run / "model.ckpt-10"],
        "pair": [run / "options.json", run / "model.ckpt-10"],
    }
    same_network(pretrained.load(*sources[source]), dumped)


def test_the_softmax_comes_along_with_its_words(run, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        assert pretrained.load(run).softmax is None
    assert "the softmax is ignored" in caplog.text
    (run / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    folder.save(pretrained.load(run), tmp_path / "ours")
    bundle = folder.load(tmp_path / "ours")
    checkpoint = tensor_bundle.open_index(run / "model.ckpt-10.index")
    assert bundle.vocabulary.words == WORDS
    states = torch.randn(4, bundle.config.lstm.output_dim)
    logits = states @ checkpoint["lm/softmax/W"].T + checkpoint["lm/softmax/b"]
    assert_close(bundle.softmax.log_probs(states), logits.log_softmax(dim=1))


def test_a_vocabulary_of_another_model_is_refused(run):
    (run / "other.txt").write_text("\n".join(WORDS[:4]) + "\n")
    with pytest.raises(elmore.ConfigError, match=r"softmax has shape \(5, 6\).* \(4, 6\)"):
        pretrained.load(run, vocabulary=run / "other.txt")


def test_a_checkpoint_is_exported_with_262_characters_for_prediction(run, settings, weights):
    result = run_elmore("convert", str(run), str(run.parent / "out"), "--to", "allennlp")
    assert result.code == 0, result.err
    out = run.parent / "out"
    found, arrays = read_bilm(out / "options.json", out / "weights.hdf5")
    assert found["char_cnn"] == settings["char_cnn"]
    assert found["char_cnn"]["n_characters"] == 262
    assert arrays.keys() == weights.keys()
    for name, array in weights.items():
        assert_array_equal(arrays[name], array)


def test_a_model_of_words_is_read(tmp_path, rng):
    settings = bilm_options(char_cnn=None) | {"n_tokens_vocab": len(WORDS)}
    weights = bilm_weights(settings, rng, num_words=len(WORDS))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    write_checkpoint(tmp_path / "run" / "model.ckpt-1", training_variables(weights))
    (tmp_path / "run" / "options.json").write_text(json.dumps(settings))
    words = tmp_path / "run" / "vocab.txt"
    paths = write_bilm(tmp_path / "dumped", settings, weights)
    same_network(pretrained.load(tmp_path / "run"), pretrained.load(*paths, vocabulary=words))
    (tmp_path / "run" / "options.json").unlink()
    assert pretrained.load(tmp_path / "run").config.words.num_words == len(WORDS)


def test_a_run_of_one_layer_lacks_a_level_of_names(tmp_path, rng):
    settings = bilm_options(n_layers=1)
    weights = bilm_weights(settings, rng)
    variables = {
        name.replace("multi_rnn_cell/cell_0/", ""): array
        for name, array in training_variables(weights).items()
    }
    index = write_checkpoint(tmp_path / "run" / "model.ckpt-1", variables)
    paths = write_bilm(tmp_path / "dumped", settings, weights)
    same_network(pretrained.load(paths[0], index), pretrained.load(*paths))


def test_a_module_of_the_hub_needs_no_options(tmp_path, weights, dumped):
    module = write_module(tmp_path / "hub", module_variables(weights))
    same_network(pretrained.load(module), dumped)
    assert pretrained.load(module).mixes == (elmore.SavedMix((0.0, 0.0, 0.0), 1.0),)
    names = {path.name for path in pretrained.model_files(module)}
    assert names == {"saved_model.pb", "tfhub_module.pb", "variables.index",
                     "variables.data-00000-of-00001"}  # fmt: skip


def test_a_zipped_module_with_a_trained_mix_goes_through_convert(tmp_path, weights, dumped):
    module = write_module(tmp_path / "hub", module_variables(weights, ([1, 0, -1], 0.5)))
    with zipfile.ZipFile(tmp_path / "hub.zip", "w") as archive:
        for path in module.rglob("*"):
            archive.write(path, path.relative_to(module))
    result = run_elmore("convert", str(tmp_path / "hub.zip"), str(tmp_path / "ours"))
    assert result.code == 0, result.err
    elmo = elmore.load(tmp_path / "ours")
    (mix,) = elmo.bundle.mixes
    shares = np.exp([1, 0, -1]) / np.exp([1, 0, -1]).sum()
    layers = elmore.Embedder(dumped).embed(BATCH, layers="all")
    for mixed, stack in zip(elmo.embed(BATCH, layers=mix), layers, strict=True):
        expected = 0.5 * np.tensordot(shares, stack.vectors, 1)
        np.testing.assert_allclose(mixed.vectors, expected, atol=1e-6)


def test_info_names_all_files_of_a_checkpoint(run):
    result = run_elmore("info", str(run / "model.ckpt-10"), "--json")
    assert result.code == 0, result.err
    assert set(json.loads(result.out)["sha256"]) == {
        "model.ckpt-10.index",
        "model.ckpt-10.data-00000-of-00001",
    }


def refused(*sources: object) -> str:
    with pytest.raises(elmore.ElmoreError) as caught:
        pretrained.load(*sources)
    return str(caught.value)


def test_an_incomplete_checkpoint_is_refused_in_one_sentence(run, tmp_path):
    index = run / "model.ckpt-10.index"
    data = run / "model.ckpt-10.data-00000-of-00001"
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2])
    assert "data-00000-of-00001 ends before" in refused(index)
    data.unlink()
    assert "are all its files here, and complete?" in refused(index)
    data.write_bytes(whole)
    index.write_bytes(index.read_bytes()[:-10])
    assert "it does not end as an index does" in refused(index)


def test_checkpoints_among_which_nothing_chooses(run):
    (run / "checkpoint").unlink()
    assert "found 2 checkpoints, model.ckpt-10.index among them" in refused(run)


@pytest.mark.parametrize(("value", "kind"), [(np.nan, np.float32), (1e39, np.float64)])
@pytest.mark.parametrize(
    "name", ["aggregation/scaling", "aggregation/weights", "bilm/CNN_proj/b_proj"]
)
def test_numbers_that_float32_does_not_have_are_refused(tmp_path, weights, name, value, kind):
    variables = module_variables(weights)
    variables[name] = np.full(variables[name].shape, value, kind)
    module = write_module(tmp_path / "hub", variables)
    assert "values that are not finite in float32" in refused(module)


def test_other_peoples_checkpoints(tmp_path, weights):
    index = write_checkpoint(tmp_path / "bert", {"bert/pooler/kernel": np.ones((2, 2))})
    assert "has bert/pooler/kernel, but no variables of an ELMo model" in refused(index)
    variables = training_variables(weights)
    del variables["lm/RNN_0/rnn/multi_rnn_cell/cell_0/lstm_cell/kernel"]
    assert "not all variables" in refused(write_checkpoint(tmp_path / "half", variables))
    twice = training_variables(weights) | module_variables(weights)
    assert "has both" in refused(write_checkpoint(tmp_path / "twice", twice))
    whole = training_variables(weights)
    whole["lm/char_embed"] = whole["lm/char_embed"].astype(np.int32)
    assert "kind 3, expected floating-point" in refused(write_checkpoint(tmp_path / "int", whole))


def test_damaged_bytes_never_end_in_anything_but_one_sentence(run, rng):
    index = run / "model.ckpt-10.index"
    whole = index.read_bytes()
    sentences = []
    for position in rng.integers(0, len(whole), 100):
        changed = bytearray(whole)
        changed[position : position + 3] = rng.integers(0, 256, 3, dtype=np.uint8).tobytes()
        index.write_bytes(bytes(changed[: len(whole)]))
        try:
            pretrained.load(index)
        except elmore.ElmoreError as error:
            sentences.append(str(error))
    assert len(sentences) > 30
    assert not any("\n" in sentence for sentence in sentences)


def test_an_hdf5_file_beside_a_checkpoint_is_taken(run, dumped, settings, weights):
    bilm_tf.write_bilm_tf(dumped, run.parent / "dump")
    shutil.copy(run.parent / "dump" / "weights.hdf5", run)
    assert "bilm-tf HDF5" in pretrained.load(run).card.source


HEADER = field(1, 1) + field(3, field(1, 1))
ONE = np.float32([1, 2])


@pytest.mark.parametrize(
    ("header", "value", "found"),
    [
        (HEADER + field(2, 1), entry(ONE, 0, 0), "its numbers are big-endian"),
        (field(3, field(1, 1)), entry(ONE, 0, 0), "it has 0 parts"),
        (field(1, 10**5), entry(ONE, 0, 0), "it has 100000 parts"),
        (HEADER, entry(ONE, 1, 0), "lm/x is in part 1 of 1"),
        (HEADER, entry(ONE, 0, 0) + field(7, b"slice"), "lm/x is cut into slices"),
        (HEADER, b"\xff" * 12, "a number has no end"),
        (field(1, b"x"), entry(ONE, 0, 0), "field 1 is not a number"),
        (HEADER, field(1, 1) + field(2, 5), "field 2 is not a message"),
    ],
)
def test_an_inconsistent_index_is_refused(tmp_path, header, value, found):
    (tmp_path / "m.index").write_bytes(table([(b"", header), (b"lm/x", value)], 20))
    with pytest.raises(elmore.WeightsError, match="not a readable TensorFlow checkpoint") as caught:
        tensor_bundle.open_index(tmp_path / "m.index")
    assert found in str(caught.value)


def test_an_index_that_leads_to_one_block_twice_is_refused(tmp_path):
    rows = block([(b"", HEADER), (b"lm/x", entry(ONE, 0, 0))])
    position = varint(0) + varint(len(rows))
    blocks = block([(b"a", position), (b"b", position)])
    end = b"\0" * 5  # not compressed, and a checksum
    footer = varint(0) + varint(0) + varint(len(rows + end)) + varint(len(blocks))
    magic = table([], 1)[-8:]
    (tmp_path / "m.index").write_bytes(rows + end + blocks + end + footer.ljust(40, b"\0") + magic)
    with pytest.raises(elmore.WeightsError, match="its blocks overlap"):
        tensor_bundle.open_index(tmp_path / "m.index")
