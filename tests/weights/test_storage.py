"""Weights in a byte: what is rounded away, what comes back, and files that do not fit."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from elmore.errors import ConfigError, WeightsError
from elmore.weights import folder
from elmore.weights.packaging import package_model
from elmore.weights.storage import (
    dequantize_state,
    quantize_rows,
    quantize_state,
    quantize_to_one_step,
)
from elmore.weights.tensor_file import SCALE, match_scales
from tests.support import toy_corpus
from tests.support.sweeps import pick


@given(st.integers(1, 9), st.integers(1, 70), st.floats(-12, 4), st.integers(0, 2**31))
@settings(max_examples=pick(12, 60))
def test_a_row_is_off_by_half_a_step_of_its_own_scale_at_most_where_it_is_not_cut(
    rows, columns, magnitude, seed
):
    weights = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    weights *= 2.0**magnitude
    numbers, scales = quantize_rows(weights)
    scales = scales.float()
    back = numbers.float() * scales[:, None]
    off = (back - weights).abs()
    inside = weights.abs() <= 127 * scales[:, None]
    assert (off[inside] <= (0.5001 * scales[:, None]).expand_as(off)[inside]).all()
    assert numbers.dtype == torch.int8
    assert numbers.abs().max() <= 127
    # as good as the plain choice, whose largest weight is 127, or better
    plain = (weights.abs().amax(dim=1) / 127).half().float().clamp(min=2**-24)[:, None]
    naive = (weights / plain).round().clamp(-127, 127) * plain
    assert (off**2).sum() <= ((naive - weights) ** 2).sum() * (1 + 1e-5)


@given(st.integers(1, 9), st.integers(2, 70), st.floats(-12, 4), st.integers(0, 2**31))
@settings(max_examples=pick(12, 60))
def test_one_step_for_all_rows_is_larger_only_where_a_number_would_exceed_127(
    rows, columns, magnitude, seed
):
    weights = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    weights *= 2.0**magnitude
    weights[0] *= 100
    numbers, scales = quantize_to_one_step(weights)
    scales = scales.float()
    assert numbers.dtype == torch.int8
    off = (numbers.float() * scales[:, None] - weights).abs()
    assert (off <= 0.51 * scales[:, None]).all()  # half a step, and a scale of half precision
    step = weights.square().mean().sqrt() / 8.5
    larger = scales > 1.001 * step.clamp(min=2**-24)
    assert (weights.abs().amax(dim=1)[larger] >= 126 * scales[larger]).all()


def test_one_step_takes_fewer_bits_than_a_scale_for_each_row_of_the_same_error():
    weights = torch.randn(64, 512) * torch.logspace(-1, 0, 64)[:, None]
    numbers, scales = quantize_to_one_step(weights)
    error = (numbers.float() * scales.float()[:, None] - weights).square().mean()
    own = weights.square().mean(dim=1).sqrt() * (error / weights.square().mean()).sqrt() * 12**0.5
    by_row = (weights / own[:, None]).round()
    assert (by_row * own[:, None] - weights).square().mean() >= 0.95 * error
    assert entropy(numbers) < entropy(by_row) - 0.1


def entropy(numbers: torch.Tensor) -> float:
    """Bits that a number takes, if each is encoded by how often it occurs."""
    _, counts = numbers.unique(return_counts=True)
    shares = counts / counts.sum()
    return -(shares * shares.log2()).sum().item()


def test_an_int6_model_is_read_like_an_int8_one_and_makes_a_smaller_wheel(bundle, tmp_path):
    sizes, of_each = {}, {"int8": "row", "int6": "matrix"}
    for storage in of_each:
        folder.save(bundle, tmp_path / storage, storage=storage)
        wheel = package_model(tmp_path / storage, tmp_path / "dist", name=storage)
        sizes[storage] = wheel.stat().st_size
        tensors = load_file(tmp_path / storage / "model.safetensors")
        assert {t.dtype for t in tensors.values()} == {torch.int8, torch.float16}
        recorded = folder.load(tmp_path / storage).card.training["storage"]
        assert recorded == f"{storage}, a scale for each {of_each[storage]}"
    assert sizes["int6"] < 0.85 * sizes["int8"]
    whole, small = bundle, folder.load(tmp_path / "int6")
    layers = [each.run([["the", "cat", "sat"]])[0].states for each in (whole, small)]
    assert 0 < (layers[0] - layers[1]).abs().max() < 0.08 * layers[0].abs().max()


def test_what_the_card_says_beyond_the_storage_is_kept(bundle, tmp_path):
    card = replace(bundle.card, training={"storage": "int8, a scale for each row; scored so"})
    for storage, said in (
        ("float32", "int8, a scale for each row; scored so"),
        ("int8", "int8, a scale for each row; scored so"),
        ("int6", "int6, a scale for each matrix"),
    ):
        folder.save(replace(bundle, card=card), tmp_path / storage, storage=storage)
        assert folder.load(tmp_path / storage).card.training["storage"] == said


def test_a_row_of_zeros_stays_zero():
    numbers, scales = quantize_rows(torch.zeros(2, 8))
    assert (numbers.float() * scales.float()[:, None] == 0).all()


def test_small_tensors_and_vectors_stay_in_half_precision():
    tensors = {"bias": torch.randn(20_000), "few": torch.randn(10, 10), "m": torch.randn(128, 128)}
    result = quantize_state(tensors, "int8")
    assert {name: tensor.dtype for name, tensor in result.items()} == {
        "bias": torch.float16,
        "few": torch.float16,
        "m": torch.int8,
        "m" + SCALE: torch.float16,
    }
    assert match_scales(set(result)) == {"bias": None, "few": None, "m": "m" + SCALE}


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_values_too_large_for_half_precision_are_refused_before_writing(storage):
    for weights in (torch.tensor([1.0, 1e6]), torch.full((128, 128), 1e9)):
        with pytest.raises(WeightsError, match=f"w has numbers that {storage} cannot"):
            quantize_state({"w": weights}, storage)


def test_an_unknown_storage_is_refused():
    with pytest.raises(ConfigError, match=r"storage must be one of float32, .*found 'float64'"):
        quantize_state({"weight": torch.ones(2, 2)}, "float64")


def test_kernels_of_three_dimensions_keep_their_shape():
    weights = torch.randn(64, 16, 16)
    result = quantize_state({"w": weights}, "int8")
    back = dequantize_state(result)["w"]
    assert back.shape == weights.shape
    assert (back - weights).abs().max() < 0.05


@pytest.fixture
def bundle(corpus):
    wide = toy_corpus.recipe("model.lstm.cell_dim=512", "model.lstm.output_dim=32")
    return toy_corpus.training(corpus, wide).bundle({})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    return toy_corpus.prepare_corpus(folder, "toy", toy_corpus.sentences(200))


def test_an_int8_model_folder_is_a_quarter_as_large_and_nearly_as_accurate(bundle, tmp_path):
    folder.save(bundle, tmp_path / "whole")
    folder.save(bundle, tmp_path / "bytes", storage="int8")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "bytes")]
    assert sizes[1] < 0.4 * sizes[0]
    whole, small = (folder.load(tmp_path / name) for name in ("whole", "bytes"))
    layers = [each.run([["the", "cat", "sat"]])[0].states for each in (whole, small)]
    assert layers[1].dtype == torch.float32
    assert 0 < (layers[0] - layers[1]).abs().max() < 0.02 * layers[0].abs().max()


@pytest.mark.parametrize("spoil", ["shape", "dtype", "nan", "none", "flat", "large"])
def test_a_scale_that_does_not_fit_is_refused_in_one_sentence(bundle, tmp_path, spoil):
    folder.save(bundle, tmp_path / "bytes", storage="int8")
    path = tmp_path / "bytes" / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith(SCALE))
    if spoil == "shape":
        tensors[name] = tensors[name][:-1]
    elif spoil == "dtype":
        tensors[name.removesuffix(SCALE)] = tensors[name.removesuffix(SCALE)].half()
    elif spoil == "flat":
        tensors[name.removesuffix(SCALE)] = tensors[name.removesuffix(SCALE)].flatten()
    elif spoil == "nan":
        tensors[name][0] = torch.nan
    elif spoil == "large":
        tensors[name] = torch.full(tensors[name].shape, 3e38)
    else:
        del tensors[name]
    save_file(tensors, path)
    with pytest.raises(WeightsError, match=name.removesuffix(SCALE)):
        folder.load(tmp_path / "bytes")
