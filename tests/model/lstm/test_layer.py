"""The layer's weights are data: they move, convert, copy and load in every kind and precision."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close

from elmore.errors import DataError
from elmore.model.config import LSTMConfig
from elmore.model.lstm.call import LSTMState
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.quantize import Int8Rows
from tests.support.int8 import quantize_rows

kinds = pytest.mark.parametrize("int8", [False, True], ids=["dense", "int8"])
precisions = pytest.mark.parametrize("precision", ["exact", "fast"])


def layer_of(*, int8: bool, precision: str = "exact") -> ProjectedLSTM:
    torch.manual_seed(0)
    layer = ProjectedLSTM(LSTMConfig(cell_dim=24, output_dim=16)).requires_grad_(False)
    if int8:
        for name in ("input", "recurrent", "projection"):
            layer.quantize(name, quantize_rows(getattr(layer, name)))
    layer.precision = precision
    return layer


def outputs(layer: ProjectedLSTM, dtype: torch.dtype = torch.float) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(3, 4, 16, generator=draw).to(dtype)
    state = LSTMState(inputs.new_zeros(3, 16), inputs.new_zeros(3, 24))
    with torch.no_grad():
        return layer(inputs, torch.ones(3, 4, dtype=torch.bool), state)[0]


@kinds
@precisions
def test_copies_and_pickles_have_the_same_bits(int8, precision):
    layer = layer_of(int8=int8, precision=precision)
    expected = outputs(layer)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert isinstance(other.recurrent, Int8Rows) == int8
        assert torch.equal(outputs(other), expected)


@kinds
@precisions
@pytest.mark.parametrize("dtype", [torch.double, torch.half, torch.bfloat16], ids=str)
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # no bfloat16 in this CPU
def test_a_converted_layer_computes_in_its_type(int8, precision, dtype):
    layer = layer_of(int8=int8, precision=precision)
    expected = outputs(layer)
    result = outputs(layer.to(dtype), dtype)
    assert result.dtype == dtype
    assert_close(result.float(), expected, rtol=0, atol=0.02)
    assert_close(outputs(layer.float()), expected, rtol=0, atol=0.02)
    with pytest.raises(DataError, match=r"inputs must be torch\.float32 on cpu as the weights are"):
        outputs(layer, torch.double)


@kinds
def test_a_state_dict_is_dense_and_loads_into_any_kind(int8):
    layer, other = layer_of(int8=int8), layer_of(int8=not int8)
    saved = layer.state_dict()
    assert sorted(saved) == ["bias", "input", "projection", "recurrent"]
    assert {tensor.dtype for tensor in saved.values()} == {torch.float}
    other.load_state_dict({name: 2 * tensor for name, tensor in saved.items()})
    assert isinstance(other.input, torch.nn.Parameter)
    assert_close(other.input, 2 * saved["input"])


@kinds
@precisions
def test_results_follow_a_write_to_the_weights(int8, precision):
    layer = layer_of(int8=int8, precision=precision)
    before = outputs(layer)
    weight = layer.recurrent.scales if int8 else layer.recurrent
    weight.mul_(-2)
    after = outputs(layer)
    assert (after != before).any()
    layer.backend = "reference"
    assert_close(after, outputs(layer), rtol=0, atol=0.02)


def test_writes_that_torch_does_not_count_are_seen_after_a_move():
    layer = layer_of(int8=False)
    before = outputs(layer)
    layer.recurrent.data.mul_(-2)
    assert (outputs(layer.to("cpu")) != before).any()


def test_int8_rows_become_parameters_to_be_trained():
    layer = layer_of(int8=True)
    expected = outputs(layer)
    assert [name for name, _ in layer.named_parameters()] == ["bias"]
    layer.dequantize()
    assert len(list(layer.parameters())) == 4
    assert_close(outputs(layer), expected, rtol=0, atol=1e-6)


def test_rows_of_another_shape_are_refused():
    rows = Int8Rows(torch.zeros(3, 5, dtype=torch.int8), torch.ones(3))
    for name in ("input", "bias"):
        with pytest.raises(DataError, match=rf"no matrix {name} of shape \(3, 5\)"):
            layer_of(int8=False).quantize(name, rows)
