"""The native products: right, and with the same bits for a row in any batch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.errors import DataError
from elmore.model import native
from elmore.model.char_cnn import CharCNN
from elmore.model.config import CharCNNConfig
from elmore.model.highway import Highway
from elmore.model.linear import Linear
from tests.support.sweeps import pick

pytestmark = pytest.mark.skipif(not native.available(), reason="there is no native library here")
dot = pytest.mark.skipif(not native.has_int8_dot(), reason="this CPU has no int8 dot products")
KINDS = [
    "float32",
    "int8 weights",
    *(pytest.param(kind, marks=dot) for kind in ("int8 dynamic", "int8 dynamic16", "int8 split")),
]


def packed(weight: np.ndarray, kind: str, parts: int) -> native.PackedMatrix:
    if kind == "int8 weights":
        return native.pack_for_floats(native.quantize_rows(weight), parts=parts)
    rows = native.quantize_rows(weight) if kind == "int8 split" else weight
    bits = 16 if kind == "int8 dynamic16" else 8
    return native.pack(rows, parts=parts, dynamic="dynamic" in kind, activation_bits=bits)


def rounded(rows: np.ndarray) -> np.ndarray:
    numbers, scales = native.quantize_rows(rows)
    return numbers * scales[:, None]


def rounded_to_16_bits(rows: np.ndarray) -> np.ndarray:
    step = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64) / (127 * 256)
    return np.round(rows / np.where(step, step, 1)) * step


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(1, 110), st.integers(1, 90), st.integers(1, 300), st.sampled_from([1, 4]))
@settings(max_examples=pick(15, 60), deadline=None)
def test_a_product_is_that_of_the_weight_and_of_each_row_alone(
    kind, num_rows, height, width, parts
):
    weight, rows = (torch.randn(size, width).numpy() for size in (parts * height, num_rows))
    rows[0] = 0
    matrix = packed(weight, kind, parts)
    result = native.multiply(matrix, rows)
    weight = weight if kind == "float32" else rounded(weight)
    rounding = {"int8 dynamic": rounded, "int8 dynamic16": rounded_to_16_bits}
    read = rounding[kind](rows) if kind in rounding else rows
    expected = read.astype(np.float64) @ weight.T.astype(np.float64)
    # A quotient that ends in a half may be rounded either way: one part in 127 of one element.
    atol = {"int8 dynamic": 0.05 * width**0.5, "int8 dynamic16": 2e-4 * width**0.5}.get(kind, 1e-4)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=atol)
    for row in {0, num_rows // 2, num_rows - 1}:
        assert np.array_equal(native.multiply(matrix, rows[row : row + 1])[0], result[row])
    assert np.array_equal(native.multiply(matrix, rows[::-1])[::-1], result)
    bias = 10 * torch.randn(parts * height).numpy()
    added = native.multiply(matrix, rows, bias)
    np.testing.assert_allclose(added, expected + bias, rtol=1e-5, atol=atol)
    assert np.array_equal(native.multiply(matrix, rows[-1:], bias)[0], added[-1])


@dot
@pytest.mark.parametrize(("bits", "kept"), [(8, 1 / 200), (16, 1 / 50_000)])
def test_activations_have_as_many_bits_as_they_are_given(bits, kept):
    """Half a step, which is not rounded to zero, is 1 / 254 or 1 / 65,024 of the largest."""
    matrix = native.pack(np.eye(8, dtype=np.float32), dynamic=True, activation_bits=bits)
    rows = np.zeros((20, 8), np.float32)
    rows[:, 0], rows[:, 1], rows[:, 2] = 1, kept, kept / 2
    result = native.multiply(matrix, rows)
    assert (result[:, 1] > 0).all()
    assert (result[:, 2] == 0).all()


@dot
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_with_a_nan_is_nan_in_int8(value):
    rows = torch.randn(3, 8).numpy()
    rows[1, 2] = value
    result = native.multiply(native.pack(torch.randn(16, 8).numpy(), dynamic=True), rows)
    assert np.isnan(result).all(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_a_linear_layer_is_near_torch_and_follows_its_weights(precision):
    layer, rows = Linear(40, 30), torch.randn(9, 40)
    layer.precision = precision
    expected = torch.nn.functional.linear(rows, layer.weight, layer.bias)
    assert torch.equal(layer(rows), expected)  # there is a gradient
    with torch.no_grad():
        for _ in range(2):
            expected = torch.nn.functional.linear(rows, layer.weight, layer.bias)
            result = layer(rows)
            assert_close(result, expected, rtol=0, atol=1e-5 if precision == "exact" else 0.05)
            assert torch.equal(layer(rows[4:5])[0], result[4])
            layer.weight.mul_(2)
        assert layer.double()(rows.double()).dtype == torch.double


def test_a_highway_is_that_of_torch_and_of_each_row_alone():
    layer, x = Highway(37), 3 * torch.randn(11, 37)
    expected = layer(x)
    with torch.no_grad():
        result = layer(x)
        assert_close(result, expected, rtol=0, atol=3e-6)
        assert all(torch.equal(layer(x[i : i + 1])[0], result[i]) for i in range(11))


@pytest.mark.parametrize(
    "make",
    [
        lambda: (Linear(12, 9), torch.randn(3, 12)),
        lambda: (Highway(12), torch.randn(3, 12)),
        lambda: (CharCNN(CharCNNConfig(filters=((1, 4), (2, 6)))), torch.arange(6)[None]),
    ],
    ids=["linear", "highway", "characters"],
)
def test_writes_that_torch_does_not_count_never_mix_old_and_new_weights(make):
    module, inputs = make()
    with torch.no_grad():
        before = module(inputs)
        for weight in module.parameters():
            weight.data.mul_(3).add_(1)
        assert torch.equal(module(inputs), before)
        for weight in module.parameters():
            weight.mul_(1)  # this is counted
        after = module(inputs)
    assert_close(after, module(inputs).detach(), rtol=1e-5, atol=1e-4)  # with a gradient, in torch
    assert not torch.equal(after, before)


def test_a_changed_bias_is_used():
    layer, rows = Linear(12, 9), torch.randn(3, 12)
    with torch.no_grad():
        before = layer(rows)
        layer.bias.add_(1)
        assert_close(layer(rows), before + 1)


@pytest.mark.parametrize("width", [11, 13])
def test_rows_of_another_width_are_refused(width):
    with (
        torch.no_grad(),
        pytest.raises(DataError, match=rf"rows of width 12, .* found the shape \(3, {width}\)"),
    ):
        Linear(12, 9)(torch.randn(3, width))


def test_tanh_has_the_same_bits_at_any_place():
    values = 4 * torch.randn(1, 77).numpy()
    result = native.run_tanh(values)
    np.testing.assert_allclose(result, np.tanh(values), rtol=0, atol=1e-6)
    assert np.array_equal(native.run_tanh(values[:, 5:])[0], result[0, 5:])


@given(st.integers(1, 40), st.integers(1, 300), st.sampled_from([0.1, 5, 60]))
@settings(max_examples=pick(30, 200), deadline=None)
def test_a_log_sum_is_near_float64_and_that_of_each_row_alone(num_rows, width, scale):
    values = scale * torch.randn(num_rows, width).numpy()
    result = native.log_sum_exp(values)
    expected = torch.logsumexp(torch.from_numpy(values).double(), dim=1)
    np.testing.assert_allclose(result, expected, rtol=3e-7, atol=1e-6)
    for row in {0, num_rows // 2, num_rows - 1}:
        assert native.log_sum_exp(values[row : row + 1])[0] == result[row]


@pytest.mark.parametrize("scale", [0, 0.01, 4])
def test_a_log_sum_of_a_large_vocabulary_is_near_float64(scale):
    values = scale * torch.randn(2, 793_472).numpy()
    values[:, 7] = 1
    expected = torch.logsumexp(torch.from_numpy(values).double(), dim=1)
    np.testing.assert_allclose(native.log_sum_exp(values), expected, rtol=3e-7, atol=2e-6)


@pytest.mark.parametrize("place", [0, 40, 76])
def test_a_log_sum_with_a_nan_is_nan(place):
    values = torch.randn(3, 77).numpy()
    values[1, place] = np.nan
    assert np.isnan(native.log_sum_exp(values)).tolist() == [False, True, False]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_word_is_encoded_as_by_torch_in_any_batch_and_width(activation):
    config = CharCNNConfig(
        num_ids=30,
        padding_id=29,
        max_characters=20,
        embedding_dim=5,
        filters=((1, 4), (2, 70), (3, 7)),
        activation=activation,
        num_highways=1,
    )
    encoder = CharCNN(config)
    words = torch.full((60, 12), 29)
    for number, word in enumerate(words):
        length = 1 + number % 12
        word[:length] = torch.randint(0, 29, (length,))
    expected = encoder(words)
    with torch.no_grad():
        result = encoder(words)
        assert_close(result, expected, rtol=0, atol=1e-5)
        for number in (0, 7, 40):
            alone = words[number : number + 1, : 1 + number % 12]
            assert torch.equal(encoder(alone)[0], result[number])
        encoder.embedding.weight[3] = torch.nan
        assert encoder(torch.tensor([[1, 3], [1, 2]])).isnan().all(dim=1).tolist() == [True, False]


def test_ids_that_do_not_exist_are_refused_as_by_torch():
    encoder = CharCNN(CharCNNConfig())
    with torch.no_grad(), pytest.raises(IndexError):
        encoder(torch.tensor([[1, 5000]]))


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="this system lists no CPU flags")
def test_a_matrix_unit_is_used_only_where_the_cpu_has_one():
    if native.has_matrix_unit():
        assert "amx_int8" in Path("/proc/cpuinfo").read_text("ascii").split()
        assert native.has_int8_dot()
