"""AllenNLP's names: their signatures, and their behaviour by the independent numpy forward pass."""

import copy
import inspect
import io
import json
import pickle

import h5py
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from elmore.errors import ConfigError, DataError, ElmoreError
from elmore.integrations import allennlp, allennlp_bilm
from elmore.integrations.allennlp import Elmo, ElmoEmbedder, ScalarMix, batch_to_ids
from elmore.weights import catalogue
from tests.support import numpy_elmo
from tests.support.fake_checkpoints import (
    allennlp_state_dict,
    bilm_options,
    bilm_weights,
    write_bilm,
)
from tests.support.numpy_elmo import NumpyElmo, byte_ids, padded, scalar_mix

HISTORY = [
    [["The", "bank", "of", "the", "river"], ["x" * 70]],
    [["a"], ["naïve", "日本"], ["d", ".", "."], ["</S>", "The"]],
    [["once", "more", "once"]],
    [["The"], [], ["bank", "."]],
]
OPTIONS = bilm_options()


@pytest.fixture
def weights(rng):
    return bilm_weights(OPTIONS, rng, scale=2.0)


@pytest.fixture
def files(tmp_path, weights):
    return tuple(map(str, write_bilm(tmp_path / "model", OPTIONS, weights)))


@pytest.fixture
def numpy_model(weights):
    return NumpyElmo(OPTIONS, weights)


def elmo(files, num_mixes: int = 1, **kwargs) -> Elmo:
    return Elmo(*files, num_mixes, **kwargs).eval()


def representation(module: Elmo, batch: list[list[str]]) -> torch.Tensor:
    return module(batch_to_ids(batch))["elmo_representations"][0]


def close(found, expected, atol: float = 1e-5) -> None:
    if isinstance(found, torch.Tensor):
        found = found.detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def defaults(function) -> dict:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.name != "self"}


NEEDED = inspect.Parameter.empty
SIGNATURES = {
    batch_to_ids: {"batch": NEEDED},
    Elmo.__init__: {
        "options_file": NEEDED,
        "weight_file": NEEDED,
        "num_output_representations": NEEDED,
        "requires_grad": False,
        "do_layer_norm": False,
        "dropout": 0.5,
        "vocab_to_cache": None,
        "keep_sentence_boundaries": False,
        "scalar_mix_parameters": None,
        "module": None,
    },
    Elmo.forward: {"inputs": NEEDED, "word_inputs": None},
    Elmo.get_output_dim: {},
    ScalarMix.__init__: {
        "mixture_size": NEEDED,
        "do_layer_norm": False,
        "initial_scalar_parameters": None,
        "trainable": True,
    },
    ScalarMix.forward: {"tensors": NEEDED, "mask": None},
    ElmoEmbedder.__init__: {"options_file": None, "weight_file": None, "cuda_device": -1},
    ElmoEmbedder.embed_sentence: {"sentence": NEEDED},
    ElmoEmbedder.embed_batch: {"batch": NEEDED},
    ElmoEmbedder.batch_to_embeddings: {"batch": NEEDED},
    ElmoEmbedder.embed_sentences: {"sentences": NEEDED, "batch_size": 64},
    ElmoEmbedder.embed_file: {
        "input_file": NEEDED,
        "output_file_path": NEEDED,
        "output_format": "all",
        "batch_size": 64,
        "forget_sentences": False,
        "use_sentence_keys": False,
    },
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__qualname__)
def test_arguments_have_their_order_names_and_defaults(function):
    assert list(defaults(function).items()) == list(SIGNATURES[function].items())


# batch_to_ids


def test_ids_are_those_of_training_plus_one_and_zero_where_a_sentence_is_over():
    ids = batch_to_ids([["The", "x" * 70, "</S>"], ["日本", ""]])
    assert ids.dtype == torch.int64
    assert ids.shape == (2, 3, 50)
    for row, words in zip(ids.tolist(), [["The", "x" * 70, "</S>"], ["日本", ""]], strict=True):
        expected = [[i + 1 for i in byte_ids(word)] for word in words]
        assert row == expected + [[0] * 50] * (3 - len(words))


def test_boundary_words_are_single_marks():
    begin, end = batch_to_ids([["<S>", "</S>"]])[0, :, :4].tolist()
    assert begin == [259, 257, 260, 261]
    assert end == [259, 258, 260, 261]


@pytest.mark.parametrize(("batch", "shape"), [([], (0, 0, 50)), ([[]], (1, 0, 50))])
def test_nothing_has_an_empty_tensor(batch, shape):
    assert batch_to_ids(batch).shape == shape


@pytest.mark.parametrize("batch", ["a b", ["a b"], [["a", 3]]])
def test_text_that_is_not_tokenised_is_refused(batch):
    with pytest.raises(DataError, match="expected"):
        batch_to_ids(batch)


# Elmo


def test_results_have_allennlps_keys_shapes_and_types(files):
    module = elmo(files, 2)
    result = module(batch_to_ids(HISTORY[0]))
    assert set(result) == {"elmo_representations", "mask"}
    assert [x.shape for x in result["elmo_representations"]] == [(2, 5, 12)] * 2
    assert result["mask"].dtype == torch.bool
    assert result["mask"].tolist() == [[True] * 5, [True] + [False] * 4]
    assert module.get_output_dim() == 12


@pytest.mark.parametrize("training", [False, True])
def test_each_row_goes_on_from_its_own_state_batch_after_batch(files, numpy_model, training):
    module = elmo(files, dropout=0.0).train(training)
    state = None
    for batch in HISTORY:
        layers, state = numpy_model.layers(batch, state)
        expected, mask = padded(layers)
        result = module(batch_to_ids(batch))
        close(result["elmo_representations"][0], expected.mean(axis=0))
        assert result["mask"].tolist() == mask.tolist()


def test_a_second_run_differs_and_a_reset_makes_it_the_first_again(files):
    module = elmo(files)
    first, second = (representation(module, HISTORY[0]) for _ in range(2))
    assert (first - second).abs().max() > 1e-3
    module._elmo_lstm._elmo_lstm.reset_states()
    assert torch.equal(representation(module, HISTORY[0]), first)


def test_a_mask_resets_some_rows_alone(files):
    module, fresh = elmo(files), elmo(files)
    batch = [["The", "bank"], ["a", "b"]]
    first = representation(fresh, batch)
    for x in (module, fresh):
        x._elmo_lstm._elmo_lstm.reset_states()
        representation(x, batch)
    module._elmo_lstm._elmo_lstm.reset_states(torch.tensor([False, True]))
    result, kept = representation(module, batch), representation(fresh, batch)
    assert_close(result[0], kept[0])
    assert_close(result[1], first[1])
    with pytest.raises(DataError, match="the state has 2 rows, the mask to reset has 3"):
        module._elmo_lstm._elmo_lstm.reset_states(torch.ones(3, dtype=torch.bool))


def test_the_states_they_move_by_hand_can_be_moved_here(files):
    module = elmo(files)
    memory = module._elmo_lstm._elmo_lstm
    assert memory._states is None
    first = representation(module, HISTORY[0])
    states = memory._states
    assert [x.shape for x in states] == [(2, 2, 12), (2, 2, 20)]  # layers, rows, both directions
    second = representation(module, HISTORY[0])
    memory._states = states
    assert_close(representation(module, HISTORY[0]), second)
    memory._states = None
    assert_close(representation(module, HISTORY[0]), first)


def test_without_statefulness_every_call_is_the_first(files):
    module = elmo(files)
    module._elmo_lstm._elmo_lstm.stateful = False
    first, second = (representation(module, HISTORY[0]) for _ in range(2))
    assert torch.equal(first, second)


def test_boundaries_stay_when_asked(files, numpy_model):
    module = elmo(files, keep_sentence_boundaries=True)
    layers, _ = numpy_model.layers_with_boundaries(HISTORY[0])
    expected, mask = padded(layers)
    result = module(batch_to_ids(HISTORY[0]))
    close(result["elmo_representations"][0], expected.mean(axis=0))
    assert result["mask"].tolist() == mask.tolist()


def test_the_layer_norm_counts_the_boundaries(files, numpy_model):
    layers, _ = numpy_model.layers_with_boundaries(HISTORY[0])
    evened = numpy_elmo.layer_norm_allennlp(*padded(layers)).mean(axis=0)
    _, mask = padded([layer[:, 1:-1] for layer in layers])
    result = representation(elmo(files, do_layer_norm=True), HISTORY[0])
    close(result, evened[:, 1:-1] * mask[:, :, None], atol=1e-4)


def test_given_parameters_fix_the_mixes(files, numpy_model):
    module = elmo(files, 2, scalar_mix_parameters=[0.3, -1.0, 2.0])
    layers, _ = numpy_model.layers(HISTORY[0])
    expected = scalar_mix(padded(layers)[0], np.array([0.3, -1.0, 2.0]), 1.0)
    result = module(batch_to_ids(HISTORY[0]))["elmo_representations"]
    close(result[0], expected)
    close(result[1], expected)
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_huge_parameters_choose_one_layer(files, numpy_model):
    layers, _ = numpy_model.layers([["The", "bank"]])
    module = elmo(files, scalar_mix_parameters=[-9e10, 1, -9e10])
    close(representation(module, [["The", "bank"]])[0], layers[0][1])


def test_more_dimensions_in_front_come_back(files):
    batch = [["The", "bank"], ["a"], ["b", "c"], [], ["d"], ["e", "f"]]
    ids = batch_to_ids(batch)
    flat = elmo(files)(ids)
    result = elmo(files)(ids.view(3, 1, 2, 2, 50))
    assert result["elmo_representations"][0].shape == (3, 1, 2, 2, 12)
    assert_close(result["elmo_representations"][0].flatten(0, 2), flat["elmo_representations"][0])
    assert torch.equal(result["mask"].flatten(0, 2), flat["mask"])
    kept = elmo(files, keep_sentence_boundaries=True)(ids.view(3, 2, 2, 50))
    assert kept["elmo_representations"][0].shape == (3, 2, 4, 12)
    assert kept["mask"].shape == (3, 2, 4)


@pytest.mark.parametrize("batch", [[], [[]], [[], []]])
def test_an_empty_batch_has_an_empty_result(files, batch):
    result = elmo(files)(batch_to_ids(batch))
    assert result["elmo_representations"][0].shape == (len(batch), 0, 12)
    assert result["mask"].shape == (len(batch), 0)


def test_the_mixes_learn_and_the_bilm_only_when_asked(files):
    for requires_grad in (False, True):
        module = elmo(files, 2, requires_grad=requires_grad).train()
        for _ in range(2):  # the state carries no graph into the next step
            result = module(batch_to_ids(HISTORY[0]))["elmo_representations"]
            sum(x.square().sum() for x in result).backward()
        for name, parameter in module.named_parameters():
            learns = requires_grad or name.startswith("scalar_mix")
            assert (parameter.grad is not None) == learns, name
            assert not learns or parameter.grad.isfinite().all()


def test_dropout_acts_in_training_on_the_representations_alone(files, numpy_model):
    layers, _ = numpy_model.layers([["The", "bank"]])
    result = representation(elmo(files, dropout=0.5).train(), [["The", "bank"]])[0]
    kept = result != 0
    assert 0 < kept.sum() < kept.numel()
    close(result[kept], 2 * layers[0].mean(axis=0)[kept.numpy()])


def test_cached_words_change_nothing(files, caplog):
    ids = batch_to_ids(HISTORY[0])
    expected = elmo(files)(ids)["elmo_representations"][0]
    cached = elmo(files, vocab_to_cache=["@@PADDING@@", "The", "bank"])
    numbers = torch.ones(ids.shape[:2], dtype=torch.long)
    assert torch.equal(cached(ids, numbers)["elmo_representations"][0], expected)
    assert not caplog.records
    assert torch.equal(elmo(files)(ids, numbers)["elmo_representations"][0], expected)
    assert "vocab_to_cache" in caplog.text


def test_a_custom_module_replaces_the_bilm(files):
    own = allennlp._ElmoBiLm(*files)
    module = Elmo(None, None, 1, module=own).eval()
    assert module._elmo_lstm is own
    assert torch.equal(representation(module, HISTORY[0]), representation(elmo(files), HISTORY[0]))
    with pytest.raises(ConfigError, match="pass None for both"):
        Elmo(*files, 1, module=own)


def test_a_copy_and_a_pickle_go_on_from_the_same_state(files):
    module = elmo(files)
    representation(module, HISTORY[0])
    others = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    expected = representation(module, HISTORY[1])
    for other in others:
        assert torch.equal(representation(other, HISTORY[1]), expected)


# state_dict


def test_the_state_dict_has_their_names_and_values(files, weights):
    expected = allennlp_state_dict(OPTIONS, weights)
    result = elmo(files).state_dict()
    assert set(result) == set(expected)
    for name, tensor in expected.items():
        assert_close(result[name], tensor, rtol=0, atol=1e-6)


def test_an_allennlp_checkpoint_is_loaded_inside_a_larger_model(files, weights, tmp_path):
    other = bilm_weights(OPTIONS, np.random.default_rng(1), scale=2.0)
    path = write_bilm(tmp_path / "other", OPTIONS, other)
    theirs = allennlp_state_dict(OPTIONS, weights, prefix="elmo.")
    theirs["elmo._elmo_lstm._word_embedding.weight"] = torch.zeros(3, 6)  # their cache
    theirs["elmo.scalar_mix_0.gamma"] = torch.tensor([2.0])
    model = torch.nn.ModuleDict({"elmo": Elmo(*map(str, path), 1)}).eval()
    model.load_state_dict(theirs)
    result = representation(model["elmo"], HISTORY[0])
    assert_close(result, 2 * representation(elmo(files), HISTORY[0]), rtol=0, atol=1e-5)


def test_a_missing_weight_is_named(files, weights):
    theirs = allennlp_state_dict(OPTIONS, weights)
    del theirs["_elmo_lstm._token_embedder._projection.bias"]
    with pytest.raises(RuntimeError, match=r"projection\.bias"):
        elmo(files).load_state_dict(theirs)


# ScalarMix


def test_a_mix_takes_tensors_of_any_shape():
    for shape in [(4,), (2, 5, 4), (2, 3, 5, 4)]:
        tensors = [torch.randn(shape) for _ in range(3)]
        assert_close(ScalarMix(3)(tensors), torch.stack(tensors).mean(dim=0))


def test_a_mix_has_their_parameters():
    mix = ScalarMix(2, initial_scalar_parameters=[0.0, 1.0])
    assert {name: x.tolist() for name, x in mix.named_parameters()} == {
        "gamma": [1.0],
        "scalar_parameters.0": [0.0],
        "scalar_parameters.1": [1.0],
    }
    mix([torch.ones(1, 1, 2), torch.zeros(1, 1, 2)]).sum().backward()
    assert all(parameter.grad.abs() > 0 for parameter in mix.parameters())
    assert not any(x.requires_grad for x in ScalarMix(2, trainable=False).parameters())


def test_a_mix_with_layer_norm_counts_what_the_mask_leaves():
    tensors = [torch.randn(2, 3, 4) for _ in range(2)]
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    expected = numpy_elmo.layer_norm_allennlp(torch.stack(tensors).numpy(), mask.bool().numpy())
    close(ScalarMix(2, do_layer_norm=True)(tensors, mask), expected.mean(axis=0))
    with pytest.raises(ValueError, match="needs the mask"):
        ScalarMix(2, do_layer_norm=True)(tensors)


def test_wrong_numbers_of_weights_and_tensors_are_named():
    with pytest.raises(ConfigError, match="3 weights and was given 2"):
        ScalarMix(3, initial_scalar_parameters=[1.0, 2.0])
    with pytest.raises(ValueError, match="built for 3 layers and was given 2"):
        ScalarMix(3)([torch.ones(1, 1, 2)] * 2)


# ElmoEmbedder


def test_the_embedder_gives_all_layers_and_carries_its_state(files, numpy_model):
    embedder, state = ElmoEmbedder(*files), None
    for batch in HISTORY:
        expected, state = numpy_model.layers(batch, state)
        result = embedder.embed_batch(batch)
        for a, b in zip(result, expected, strict=True):
            assert a.shape == b.shape
            assert a.dtype == np.float32
            close(a, b)


def test_the_embedder_gives_tensors_and_a_mask(files, numpy_model):
    expected, mask = padded(numpy_model.layers(HISTORY[1])[0])
    embeddings, result = ElmoEmbedder(*files).batch_to_embeddings(HISTORY[1])
    close(embeddings, expected.swapaxes(0, 1))
    assert result.tolist() == mask.tolist()
    assert not embeddings.requires_grad


def test_sentences_are_embedded_as_they_come_in_batches(files, numpy_model):
    sentences = [["a"], ["b", "c"], ["d"], ["e", "f", "g"], ["h"]]
    result = ElmoEmbedder(*files).embed_sentences(iter(sentences), batch_size=2)
    state = None
    for start in (0, 2, 4):
        expected, state = numpy_model.layers(sentences[start : start + 2], state)
        for layers in expected:
            close(next(result), layers)
    assert list(result) == []


def test_a_sentence_without_tokens_has_no_vectors(files):
    embedder = ElmoEmbedder(*files)
    assert embedder.embed_sentence([]).shape == (3, 0, 12)
    assert embedder.elmo_bilm._elmo_lstm.rows is None
    assert [x.shape for x in embedder.embed_batch([["a"], []])] == [(3, 1, 12), (3, 0, 12)]
    assert embedder.embed_batch([]) == []


def test_without_files_it_is_the_bundled_model():
    embedder = ElmoEmbedder()
    assert embedder.embed_sentence(["Hello", "."]).shape == (3, 2, 512)
    assert Elmo(None, None, 1).get_output_dim() == 512


LINES = "The bank\na b/c .\nThe bank\n"


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_a_file_has_a_dataset_for_each_line(files, tmp_path, output_format):
    path = tmp_path / "out.hdf5"
    ElmoEmbedder(*files).embed_file(io.StringIO(LINES), str(path), output_format, batch_size=2)
    layers = list(ElmoEmbedder(*files).embed_sentences(map(str.split, LINES.splitlines()), 2))
    kinds = {"all": lambda x: x, "top": lambda x: x[2], "average": lambda x: np.average(x, axis=0)}
    with h5py.File(path) as file:
        assert set(file) == {"0", "1", "2", "sentence_to_index"}
        for number, expected in enumerate(layers):
            assert file[str(number)].dtype == np.float32
            close(file[str(number)][()], kinds[output_format](expected), atol=1e-6)
        numbers = file["sentence_to_index"]
        assert numbers.shape == (1,)
        assert json.loads(numbers[0]) == {"The bank": "2", "a b/c .": "1"}


def test_sentences_are_forgotten_or_are_the_keys_when_asked(files, tmp_path):
    embedder, path = ElmoEmbedder(*files), tmp_path / "out.hdf5"
    embedder.embed_file(["a b\n", "c\n"], str(path), forget_sentences=True)
    with h5py.File(path) as file:
        assert set(file) == {"0", "1"}
    embedder.embed_file(["a b\n", "c\n"], str(path), use_sentence_keys=True)
    with h5py.File(path) as file:
        assert set(file) == {"a b", "c"}


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["a", " ", "b"], {}, "line 2 is empty"),
        (["a", "b", "a"], {"use_sentence_keys": True}, "'a' appears twice"),
        (["a"], {"batch_size": 0}, "batch_size must be at least 1, found 0"),
        (["a"], {"output_format": "mean"}, "'all', 'top', 'average', found 'mean'"),
    ],
)
def test_a_failed_write_leaves_no_file(files, tmp_path, lines, options, message):
    path = tmp_path / "out.hdf5"
    with pytest.raises(ElmoreError, match=message):
        ElmoEmbedder(*files).embed_file(lines, str(path), **options)
    assert not path.exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_gpu_has_the_same_results_and_moves_the_state(files):
    device, module = ElmoEmbedder(*files, cuda_device=0), elmo(files)
    expected = ElmoEmbedder(*files)
    for batch in HISTORY:
        for a, b in zip(device.embed_batch(batch), expected.embed_batch(batch), strict=True):
            close(a, b, atol=1e-4)
    representation(module, HISTORY[0])
    moved = copy.deepcopy(module).cuda()
    result = moved(batch_to_ids(HISTORY[1]).cuda())["elmo_representations"][0]
    close(result.cpu(), representation(module, HISTORY[1]).detach().numpy(), atol=1e-4)


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids[..., :40], r"\(sentences, tokens, 50\); found torch.int64 of shape"),
        (lambda ids: ids[0], "expected ids from batch_to_ids"),
        (lambda ids: ids.float(), "found torch.float32"),
        (lambda ids: ids.masked_fill(ids == 261, 262), "between 1 and 261, found 67 to 262"),
        (lambda ids: ids.masked_fill(ids == 261, 0), "0 is for padding tokens only"),
        (lambda ids: ids.flip(1), "pad sentences on the right"),
    ],
)
def test_a_tensor_that_holds_no_words_is_refused(files, change, message):
    ids = batch_to_ids([["BB", "BBB"], ["B"]])
    with pytest.raises(DataError, match=message):
        elmo(files)(change(ids))


def test_files_that_do_not_fit_are_refused(files, tmp_path, rng):
    with pytest.raises(ConfigError, match="pass both, or neither"):
        ElmoEmbedder(files[0])
    with pytest.raises(ConfigError, match="num_output_representations must be at least 1"):
        Elmo(*files, 0)
    with pytest.raises(ConfigError, match="cuda_device=99"):
        ElmoEmbedder(*files, cuda_device=99)
    words = ["<S>", "</S>", "<UNK>", "the"]
    options = bilm_options(char_cnn=None) | {"n_tokens_vocab": len(words)}
    path = write_bilm(tmp_path / "words", options, bilm_weights(options, rng, num_words=4))
    (tmp_path / "words" / "vocab.txt").write_text("\n".join(words) + "\n")
    with pytest.raises(ConfigError, match="for byte alphabets only"):
        Elmo(*map(str, path), 1)


def test_their_addresses_lead_to_the_model_of_that_name(files, monkeypatch):
    asked = []
    load = allennlp_bilm.pretrained.load
    monkeypatch.setattr(
        allennlp_bilm.pretrained, "load", lambda *names: asked.append(names) or load(*files)
    )
    directory = "2x1024_128_2048cnn_1xhighway"
    for host in ("s3-us-west-2.amazonaws.com/allennlp", "allennlp.s3.amazonaws.com"):
        stem = f"https://{host}/models/elmo/{directory}/elmo_{directory}"
        Elmo(f"{stem}_options.json", f"{stem}_weights.hdf5", 1)
    assert asked == [("small",)] * 2
    with pytest.raises(ConfigError, match="no named model"):
        Elmo("https://a.org/options.json", "https://a.org/weights.hdf5", 1)


def test_no_two_known_models_have_files_of_the_same_names():
    pairs = [
        tuple(url.split("/")[-2:] for url in x.files)
        for x in catalogue.known_models().values()
        if x.files
    ]
    pairs = list(map(str, pairs))
    assert len(set(pairs)) == len(pairs)
