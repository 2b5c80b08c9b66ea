"""Our own format: what it keeps, what it still reads, what it refuses."""

import json
import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import elmore
from elmore.errors import ConfigError, DataError, ElmoreError, WeightsError
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig, WordsConfig
from elmore.model.softmax import SoftmaxConfig, build
from elmore.text.characters import ByteAlphabet, Lexicon, WordAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.weights import checksums, folder, warm
from elmore.weights.bundle import Bundle, Card
from elmore.weights.convert import bilm_tf
from tests.support import toy_corpus
from tests.support.cli_runner import run_elmore

WORDS = Vocabulary(("<S>", "</S>", "<UNK>", *(f"w{number}" for number in range(40))))


def bundle(**softmax) -> Bundle:
    config = toy_corpus.recipe().model
    return Bundle(
        BiLM(config),
        ByteAlphabet(),
        WORDS,
        Card(name="toy", training={"recipe": {"train": {"steps": 3}}, "scores": {"x": 1.5}}),
        softmax=build(SoftmaxConfig(**softmax), len(WORDS), config.lstm.output_dim),
        byte_counts=tuple(range(257)),
    )


def test_a_folder_with_checksums_is_overwritten_together_with_them(tmp_path):
    """Those of the old files would be wrong; a file of the user is still kept."""
    folder.save(bundle(), tmp_path / "model")
    for path in list((tmp_path / "model").iterdir()):
        checksums.write_record(path, checksums.file_sha256(path))
    made = bundle()
    folder.save(made, tmp_path / "model", overwrite=True)
    result = folder.load(tmp_path / "model")
    assert_close(result.model.state_dict(), made.model.state_dict(), rtol=0, atol=0)
    assert not list((tmp_path / "model").glob("*.sha256"))
    (tmp_path / "model" / "notes.sha256").touch()
    with pytest.raises(ElmoreError, match=r"contains 'notes\.sha256', which elmore did not write"):
        folder.save(made, tmp_path / "model", overwrite=True)


@pytest.mark.parametrize(
    "softmax",
    [
        {"kind": "sampled", "num_samples": 20, "unique": True},
        {"kind": "full", "chunk": 100},
        {"kind": "adaptive"},
        {"kind": "adaptive", "cutoffs": (5, 9, 30)},
        {"kind": "adaptive", "cutoffs": (5, 9), "tail_widths": (6, 2)},
    ],
    ids=["sampled", "full", "adaptive", "adaptive, cut", "adaptive, of widths"],
)
def test_a_softmax_comes_back_as_it_was(tmp_path, softmax):
    made = bundle(**softmax)
    folder.save(made, tmp_path / "model")
    result = folder.load(tmp_path / "model")
    assert result.softmax.config == made.softmax.config
    assert type(result.softmax) is type(made.softmax)
    assert_close(result.softmax.state_dict(), made.softmax.state_dict(), rtol=0, atol=0)
    assert_close(result.model.state_dict(), made.model.state_dict(), rtol=0, atol=0)
    states, targets = torch.randn(5, 6), torch.tensor([0, 7, 12, 35, 42])
    assert_close(result.softmax.nll(states, targets), made.softmax.nll(states, targets))
    assert (result.vocabulary, result.card, result.byte_counts) == (
        WORDS,
        made.card,
        made.byte_counts,
    )
    assert elmore.load(tmp_path / "model").embed(["w1 w2"])[0].vectors.shape == (2, 12)


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_tails_of_few_bits_are_packed_in_any_storage_and_come_back_as_they_are_used(
    tmp_path, storage, bits
):
    made = bundle(kind="adaptive", cutoffs=(5, 9), tail_widths=(4, 4), tail_bits=bits)
    folder.save(made, tmp_path / "model", storage=storage)
    stored = load_file(tmp_path / "model" / folder.SOFTMAX_FILE)
    assert stored["softmax.tails.0.softmax.weight"].dtype == torch.uint8
    assert stored["softmax.tails.0.softmax.weight"].shape == (4, 4 * bits // 8)
    result = folder.load(tmp_path / "model")
    for ours, theirs in zip(result.softmax.tails, made.softmax.tails, strict=True):
        assert torch.equal(ours.softmax.weight, theirs.softmax.rounded_weight())
        assert torch.equal(ours.softmax.rounded_weight(), ours.softmax.weight)
    if storage == "float32":
        states, targets = torch.randn(5, 6), torch.tensor([0, 7, 12, 35, 42])
        with torch.no_grad():
            assert_close(result.softmax.nll(states, targets), made.softmax.nll(states, targets))
    native = result.softmax.pack()
    if native is not None:
        states, targets = torch.randn(5, 6), torch.tensor([0, 7, 12, 35, 42])
        with torch.no_grad():
            nll = result.softmax.nll(states, targets)
        assert_close(native.nll(states.numpy(), targets.numpy()), nll.numpy(), rtol=0, atol=1e-5)
    folder.save(result, tmp_path / "again", storage=storage)
    again = load_file(tmp_path / "again" / folder.SOFTMAX_FILE)
    for name in ("softmax.tails.0.softmax.weight", "softmax.tails.1.softmax.weight.scale"):
        assert torch.equal(again[name], stored[name])


@pytest.mark.parametrize("value", [3e5, float("nan"), float("inf")])
def test_tails_with_numbers_that_cannot_be_packed_are_not_written(tmp_path, value):
    made = bundle(kind="adaptive", cutoffs=(5, 9), tail_widths=(4, 4), tail_bits=2)
    with torch.no_grad():
        made.softmax.tails[1].softmax.weight[3] = value
    with pytest.raises(WeightsError, match="has numbers that 2 bits cannot represent"):
        folder.save(made, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_bytes_where_no_numbers_are_packed_are_refused(tmp_path):
    folder.save(bundle(), tmp_path / "model", storage="int8")
    path = tmp_path / "model" / "model.safetensors"
    tensors, name = load_file(path), "backward_layers.0.input"
    height, width = tensors[name].shape
    packed = torch.zeros(height, width // 2, dtype=torch.uint8)
    more = {name: packed, f"{name}.scale": torch.ones(height, dtype=torch.float16)}
    save_file(tensors | more, path)
    with pytest.raises(WeightsError, match=r"has shape \(48, 3\), config\.json asks for \(48, 6\)"):
        folder.load(tmp_path / "model")
    save_file(tensors | more | {name: packed.repeat(1, 2)}, path)
    with pytest.raises(WeightsError, match="expected rows of int8 and one scale per row"):
        folder.load(tmp_path / "model")


def test_packed_tails_of_another_width_are_refused(tmp_path):
    made = bundle(kind="adaptive", cutoffs=(5, 9), tail_widths=(4, 4), tail_bits=4)
    folder.save(made, tmp_path / "model")
    path = tmp_path / "model" / folder.SOFTMAX_FILE
    tensors = load_file(path)
    name = "softmax.tails.0.softmax.weight"
    save_file(tensors | {name: tensors[name].repeat(1, 4)}, path)
    with pytest.raises(WeightsError, match=r"has shape \(4, 8\), config\.json asks for \(4, 2\)"):
        folder.load(tmp_path / "model")
    scale = f"{name}.scale"
    save_file({key: value for key, value in tensors.items() if key != scale}, path)
    with pytest.raises(WeightsError, match="has no scale; expected bytes, each of 2 numbers"):
        folder.load(tmp_path / "model")


def test_a_folder_of_the_first_format_is_still_read(tmp_path):
    """As version 1 wrote it: no softmax, no bytes, no training in the card."""
    made = replace(bundle(), softmax=None, byte_counts=None, vocabulary=None)
    folder.save(made, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    settings = json.loads(path.read_text())
    assert settings["format"] == 5
    for key in ("softmax", "byte_counts"):
        assert settings.pop(key) is None
    settings["card"].pop("training")
    path.write_text(json.dumps(settings | {"format": 1}))
    result = folder.load(tmp_path / "model")
    assert result.softmax is None
    assert result.byte_counts is None
    assert result.card.training is None
    assert_close(result.model.state_dict(), made.model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e39])
def test_a_mix_of_numbers_that_are_not_finite_is_refused(tmp_path, value):
    for mix in (
        elmore.SavedMix((value, 0.0, 0.0), 1.0),
        elmore.SavedMix((0.0, 0.0, value), 1.0),
        elmore.SavedMix((0.0, 0.0, 0.0), value),
    ):
        with pytest.raises(ConfigError, match="weights and gamma must be finite in float32"):
            folder.save(replace(bundle(), mixes=(mix,)), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_softmax_without_its_words_is_refused(tmp_path):
    folder.save(bundle(), tmp_path / "model")
    (tmp_path / "model" / "vocabulary.txt").unlink()
    with pytest.raises(DataError, match=r"has a softmax, but vocabulary.txt is missing"):
        folder.load(tmp_path / "model")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_place_of_the_words_does_not_hang(tmp_path):
    folder.save(bundle(), tmp_path / "model")
    (tmp_path / "model" / "vocabulary.txt").unlink()
    os.mkfifo(tmp_path / "model" / "vocabulary.txt")
    with pytest.raises(DataError, match=r"has a softmax, but vocabulary.txt is missing"):
        folder.load(tmp_path / "model")


def test_a_softmax_of_other_words_is_refused(tmp_path):
    folder.save(bundle(), tmp_path / "model")
    with (tmp_path / "model" / "vocabulary.txt").open("a") as file:
        file.write("more\n")
    with pytest.raises(WeightsError, match=r"softmax.* has shape \(43,.* asks for \(44,"):
        folder.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda tensors: tensors.pop("softmax.bias"), "softmax.bias is missing"),
        (
            lambda tensors: tensors.update({"softmax.more": torch.ones(1)}),
            "softmax.more is not part",
        ),
        (lambda tensors: tensors["softmax.bias"].fill_(torch.nan), "softmax.bias has 43 values"),
    ],
)
def test_a_softmax_that_was_changed_is_refused(tmp_path, change, found):
    folder.save(bundle(), tmp_path / "model")
    path = tmp_path / "model" / "softmax.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(WeightsError, match=found):
        folder.load(tmp_path / "model")


def test_the_weights_of_a_softmax_without_one_are_refused(tmp_path):
    folder.save(bundle(), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"softmax": None}))
    with pytest.raises(WeightsError, match=r"softmax.safetensors: config.json describes no such"):
        folder.load(tmp_path / "model")


def test_a_softmax_has_a_file_of_its_own(tmp_path):
    folder.save(warm.add_warm_state(bundle()), tmp_path / "model")
    network, words = (
        set(load_file(tmp_path / "model" / f"{name}.safetensors")) for name in ("model", "softmax")
    )
    assert words == {"softmax.weight", "softmax.bias"}
    assert not any(name.startswith("softmax.") for name in network)
    folder.save(replace(bundle(), softmax=None), tmp_path / "model", overwrite=True)
    assert not (tmp_path / "model" / "softmax.safetensors").exists()


def test_a_folder_of_the_third_format_has_the_softmax_in_one_file(tmp_path):
    folder.save(bundle(), tmp_path / "model")
    expected = folder.load(tmp_path / "model")
    model, softmax = (tmp_path / "model" / f"{name}.safetensors" for name in ("model", "softmax"))
    tensors = load_file(softmax)
    softmax.unlink()
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 3}))
    with pytest.raises(WeightsError, match=r"model\.safetensors: softmax\.bias is missing"):
        folder.load(tmp_path / "model")
    save_file(load_file(model) | tensors, model)
    result = folder.load(tmp_path / "model").softmax
    assert_close(result.state_dict(), expected.softmax.state_dict(), rtol=0, atol=0)


def test_a_folder_without_its_softmax_embeds(tmp_path):
    path = tmp_path / "model"
    folder.save(bundle(), path)
    expected = elmore.load(path).embed(["w1 w2"])[0].vectors
    for name in ("softmax.safetensors", "vocabulary.txt"):
        (path / name).unlink()
        elmo = elmore.load(path)
        assert_close(elmo.embed(["w1 w2"])[0].vectors, expected, rtol=0, atol=0)
        assert elmo.bundle.lacks_softmax
        facts = json.loads(run_elmore("info", str(path), "--json").out)
        assert facts["softmax"] == "softmax.safetensors is missing"
    assert not elmo.bundle.up_to_layer(1).lacks_softmax  # it would be of no use there
    folder.save(elmo.bundle, tmp_path / "copy")  # a model that never had one
    assert not folder.load(tmp_path / "copy").lacks_softmax


def test_a_softmax_that_is_a_broken_link_is_refused(tmp_path):
    folder.save(bundle(), tmp_path / "model")
    path = tmp_path / "model" / "softmax.safetensors"
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(WeightsError, match=r"softmax\.safetensors: not a readable"):
        folder.load(tmp_path / "model")


def of_words() -> Bundle:
    lstm = LSTMConfig(num_layers=1, cell_dim=8, output_dim=4)
    words = WordsConfig(num_words=len(WORDS), dim=4)
    config = BiLMConfig(characters=None, words=words, projection=False, lstm=lstm)
    return Bundle(BiLM(config).eval(), WordAlphabet(WORDS), WORDS)


def test_a_word_list_that_is_too_short_is_refused(tmp_path):
    folder.save(of_words(), tmp_path / "model")
    Vocabulary(WORDS.words[:-1]).write(tmp_path / "model" / "vocabulary.txt")
    with pytest.raises(DataError, match=r"vocabulary\.txt: has 42 words, config\.json says 43"):
        folder.load(tmp_path / "model")


def test_a_model_of_words_that_was_trained_here_goes_to_options_and_back(tmp_path):
    made = of_words()
    bilm_tf.write_bilm_tf(made, tmp_path / "out")
    result = elmore.load(tmp_path / "out").bundle
    assert result.config == made.config
    assert result.vocabulary == WORDS
    assert_close(result.model.state_dict(), made.model.state_dict(), rtol=0, atol=0)


def test_a_lexicon_without_a_mark_is_refused(tmp_path):
    letters = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", "a")
    characters = CharCNNConfig(num_ids=7, padding_id=3, filters=((1, 4),), num_highways=0)
    lstm = LSTMConfig(num_layers=1, cell_dim=8, output_dim=4)
    model = BiLM(BiLMConfig(characters=characters, lstm=lstm)).eval()
    folder.save(Bundle(model, Lexicon(letters, None)), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(path.read_text().replace('"<bow>"', '"b"'))
    with pytest.raises(DataError, match=r"config\.json: the character lexicon has no '<bow>'"):
        folder.load(tmp_path / "model")


@pytest.mark.parametrize("max_layer", [0, 3, "1", 1.0])
def test_layers_that_a_model_does_not_have_cannot_be_kept(max_layer):
    with pytest.raises(ConfigError, match="max_layer must be between 1 and 2, found"):
        bundle().up_to_layer(max_layer)


def test_the_layers_that_are_kept_start_from_their_own_warm_state():
    made = warm.add_warm_state(bundle())
    less = made.up_to_layer(1)
    assert less.softmax is None  # it reads the top, which is gone
    for part, whole in zip(less.warm_state, made.warm_state, strict=True):
        assert_close(part, whole[:, :1], rtol=0, atol=0)
    (full, _), (some, _) = made.run([["w1", "w2"]]), less.run([["w1", "w2"]])
    assert_close(some.states, full.states[:2])


def test_a_card_with_a_lone_surrogate_is_kept(tmp_path):
    """A damaged config.json may have one, as may the path of a parent."""
    made = replace(bundle(), card=Card(name="half \ud800", data="caf\udce9.txt"))
    folder.save(made, tmp_path / "model")
    card = folder.load(tmp_path / "model").card
    assert (card.name, card.data) == (made.card.name, made.card.data)
